//! The URL of a LangGraph API server.

use std::fmt;
use std::str::FromStr;

use url::Url;

/// The URL of a LangGraph API server: http or https, with or without a path. It holds no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(Url);

/// Why a text is not a [`BaseUrl`]. The messages say what is expected instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// The text does not parse as a URL.
    #[error("an absolute URL, as http://127.0.0.1:2024 ({0})")]
    NotAUrl(String),
    /// The scheme is neither http nor https.
    #[error("a URL that begins with http:// or https://")]
    Scheme,
    /// The URL has a user, password, query or fragment.
    #[error("a URL without user, password, query and fragment")]
    Extra,
}

// === impl BaseUrl ===

impl BaseUrl {
    /// The URL of a path below this one. Ids come from clients, so each segment is escaped.
    pub(crate) fn join(&self, path: &[&str]) -> Url {
        let mut url = self.0.clone();
        // An http or https URL always has a path.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    /// The URL below this one that has the same path and query as this URL has below `base`.
    pub(super) fn instead_of(&self, base: &Self, url: &Url) -> Url {
        // The path up to the slash before what `join` appends.
        let prefix = |base: &Self| {
            let url = base.join(&["x"]);
            url.path().strip_suffix("/x").unwrap_or_default().to_owned()
        };
        let below = url.path().strip_prefix(&*prefix(base)).unwrap_or_default();
        let mut moved = self.0.clone();
        moved.set_path(&format!("{}{below}", prefix(self)));
        moved.set_query(url.query());
        moved
    }
}

impl FromStr for BaseUrl {
    type Err = BaseUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text).map_err(|error| BaseUrlError::NotAUrl(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(BaseUrlError::Scheme);
        }
        let has_user = !url.username().is_empty() || url.password().is_some();
        if has_user || url.query().is_some() || url.fragment().is_some() {
            return Err(BaseUrlError::Extra);
        }
        Ok(Self(url))
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_cannot_leave_their_place_in_the_path() {
        let base: BaseUrl = "http://h:1/a/".parse().unwrap();
        let url = |id| base.join(&["threads", id, "state"]).to_string();
        assert_eq!(url("T"), "http://h:1/a/threads/T/state");
        assert_eq!(url("../x?y#z"), "http://h:1/a/threads/..%2Fx%3Fy%23z/state");
    }

    #[test]
    fn a_url_at_another_address_has_the_same_place_below_it() {
        let bases: [BaseUrl; 5] =
            ["http://a", "http://b:1/", "https://c/x", "http://d/x/y/", "http://e//"]
                .map(|base| base.parse().unwrap());
        let at = |base: &BaseUrl| {
            let mut url = base.join(&["threads", "../ x?y#z%2f", "..", "runs"]);
            url.query_pairs_mut().append_pair("limit", "1").append_pair("select", "a b&%+");
            url
        };
        for from in &bases {
            for to in &bases {
                assert_eq!(to.instead_of(from, &at(from)), at(to), "{from} {to}");
            }
        }
    }

    #[test]
    fn a_base_url_says_where_and_no_more() {
        for text in ["http://127.0.0.1:2024", "https://h/prefix/", "http://[::1]:1/"] {
            let url: BaseUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), text.trim_end_matches('/'));
        }
        for text in ["", "localhost:2024", "ftp://h", "http://u:p@h", "http://h?x", "http://h#x"] {
            assert!(text.parse::<BaseUrl>().is_err(), "{text}");
        }
    }
}
