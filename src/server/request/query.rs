//! Parameters of a request's path and query.

use std::borrow::Cow;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::server::reject::Reject;

/// The parameters of the path. A malformed one is an `invalid_request`.
pub(in crate::server) struct PathParams<T>(pub(in crate::server) T);

impl<S, T> FromRequestParts<S> for PathParams<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = Reject;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Reject> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(value)| Self(value)).map_err(|error| Reject::invalid(error.body_text()))
    }
}

/// The first value of a name in a query.
pub(in crate::server) fn param<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    params(query, name).next()
}

/// All values of a name in a query.
pub(in crate::server) fn params<'a>(
    query: &'a str,
    name: &str,
) -> impl Iterator<Item = Cow<'a, str>> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    pairs.filter(move |(key, _)| key == name).map(|(_, value)| value)
}
