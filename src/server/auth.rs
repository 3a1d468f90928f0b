//! Who may call.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::Gateway;

/// Lets a request in, as its caller.
pub(super) async fn admit(
    State(gateway): State<Arc<Gateway>>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = gateway.forward.caller(request.headers(), &[]);
    request.extensions_mut().insert(caller);
    next.run(request).await
}
