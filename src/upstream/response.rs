//! The headers and bodies of a server's responses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Response;
use http::header::{
    CONTENT_ENCODING, CONTENT_LOCATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, LOCATION,
    RETRY_AFTER,
};

use super::{Error, http1};
use crate::metrics::{LARGE, Memory};

/// How much of an error body is read, in bytes. Both servers send some hundred bytes; an error that
/// lists every graph of the server is longer.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Turns a response with an error status into an [`Error::Status`], and refuses a compressed one.
pub(super) async fn successful(
    mut response: Response<http1::Body>,
) -> Result<Response<http1::Body>, Error> {
    let is_compressed = is_compressed(response.headers());
    if response.status().is_success() {
        return if is_compressed { Err(Error::compressed()) } else { Ok(response) };
    }
    let code = response.status().as_u16();
    if response.status().is_redirection() {
        return Err(Error::redirect(code, header(response.headers(), &LOCATION)));
    }
    let wait = retry_after(response.headers());
    if is_compressed {
        return Err(Error::status(code, "").with_retry_after(wait));
    }
    let mut body = Vec::new();
    if let Err(error) = read(response.body_mut(), MAX_ERROR_BYTES, None, &mut body).await {
        // Part of an error text is better than none.
        tracing::debug!(code, %error, "the body of a refusal was not read to its end");
    }
    Err(Error::status(code, &String::from_utf8_lossy(&body)).with_retry_after(wait))
}

/// Whether a body is said to be HTML: then a login or a proxy may have answered, and nothing was
/// done.
pub(super) fn is_html(headers: &HeaderMap) -> bool {
    let content_type = header(headers, &CONTENT_TYPE).unwrap_or_default();
    content_type.trim_start().to_ascii_lowercase().starts_with("text/html")
}

/// Appends a response body to `body`. On an error, `body` has what came before it. With `memory`, the
/// rest of a large body waits for a place.
pub(super) async fn read(
    source: &mut http1::Body,
    limit: usize,
    memory: Option<&Memory>,
    body: &mut Vec<u8>,
) -> Result<(), Error> {
    let (mut some, mut place) = (Vec::new(), None);
    let expected = source.length().and_then(|length| usize::try_from(length).ok());
    // A buffer that grows leaves holes of each of its sizes in the allocator. A length that is only
    // said may be wrong, so a large one is believed when as much of it has come.
    body.reserve_exact(expected.unwrap_or_default().min(LARGE).min(limit));
    while source.read(&mut some).await? {
        let length = body.len() + some.len();
        if length > limit {
            return Err(Error::TooLarge { limit });
        }
        if length > LARGE
            && place.is_none()
            && let Some(memory) = memory
        {
            place = memory.place().await;
        }
        if length > body.capacity() {
            // Doubled as a vector does by itself, but never above the limit.
            let doubled = body.capacity().saturating_mul(2);
            let capacity = expected.unwrap_or(doubled).clamp(length, limit);
            body.reserve_exact(capacity - body.len());
        }
        body.append(&mut some);
    }
    Ok(())
}

/// Whether a body is compressed. The gateway asks for none that is, but a proxy may compress it
/// nevertheless.
fn is_compressed(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// LangGraph's id of a started run. The Python server sends both headers, the JavaScript server
/// only `Content-Location`.
pub(super) fn run_id(headers: &HeaderMap) -> Option<String> {
    let location = header(headers, &CONTENT_LOCATION).or_else(|| header(headers, &LOCATION))?;
    let mut segments = location.split(['/', '?']);
    segments.find(|segment| *segment == "runs")?;
    segments.next().filter(|id| !id.is_empty()).map(str::to_owned)
}

/// The server's time, in milliseconds since 1970.
pub(super) fn date(headers: &HeaderMap) -> Option<u64> {
    let date = time(headers, &DATE)?;
    u64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// The wait that the server asks for: seconds, or a time on the clock of its `Date` header.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let wait = header(headers, &RETRY_AFTER)?.trim();
    if let Ok(seconds) = wait.parse() {
        return Some(Duration::from_secs(seconds));
    }
    time(headers, &RETRY_AFTER)?.duration_since(time(headers, &DATE)?).ok()
}

fn time(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(header(headers, name)?).ok()
}

/// A header's value, if it is visible ASCII.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_id_is_read_from_either_header() {
        for (name, value, expected) in [
            (CONTENT_LOCATION, "/threads/T/runs/R", Some("R")),
            (LOCATION, "/threads/T/runs/R/stream", Some("R")),
            (CONTENT_LOCATION, "https://h/prefix/threads/T/runs/R?x=1", Some("R")),
            (CONTENT_LOCATION, "/runs/R", Some("R")),
            (CONTENT_LOCATION, "/threads/T/runs/", None),
            (CONTENT_LOCATION, "/elsewhere", None),
            (CONTENT_TYPE, "/threads/T/runs/R", None),
        ] {
            let headers = HeaderMap::from_iter([(name, value.parse().unwrap())]);
            assert_eq!(run_id(&headers).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn a_wait_is_read_in_seconds_and_as_a_date() {
        let read = |wait: &str, date: Option<&str>| {
            let mut headers = HeaderMap::from_iter([(RETRY_AFTER, wait.parse().unwrap())]);
            headers.extend(date.map(|date| (DATE, date.parse().unwrap())));
            retry_after(&headers).map(|wait| wait.as_secs())
        };
        let now = "Sun, 22 Nov 2026 08:00:00 GMT";
        assert_eq!(read("30", None), Some(30));
        assert_eq!(read("Sun, 22 Nov 2026 08:00:30 GMT", Some(now)), Some(30));
        assert_eq!(read("Sun, 22 Nov 2026 07:59:30 GMT", Some(now)), None);
        for other in ["", "-1", "soon", "Sun, 22 Nov 2026 08:00:30 GMT"] {
            assert_eq!(read(other, None), None, "{other}");
        }
    }
}
