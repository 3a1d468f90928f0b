//! Values from the command line of `watch`: headers and a time.

use std::time::Duration;

use http::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The longest time that `--timeout` accepts.
pub const MAX_TIMEOUT: Duration = Duration::from_hours(24);

/// Headers that each request sets itself.
const OWN: [HeaderName; 7] = [
    ACCEPT,
    CONNECTION,
    CONTENT_LENGTH,
    HOST,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("last-event-id"),
];

/// Why the headers are invalid. Messages hide the values, which may be keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHeaders {
    /// The key cannot be sent in a header.
    #[error("--api-key (THREADWAY_API_KEY): expected a key: visible ASCII characters")]
    Key,
    /// A line is not a header.
    #[error(
        "--header (THREADWAY_HEADER): expected NAME:VALUE, such as x-api-key:KEY; the variable \
         takes one per line"
    )]
    Header,
    /// Each request sets this header itself.
    #[error("--header (THREADWAY_HEADER): watch sets this header itself; leave it out")]
    Own,
    /// Two values for `authorization`.
    #[error("--api-key is sent as `authorization`; leave out --api-key or --header authorization")]
    Twice,
}

/// The headers for each request: the key as `authorization: Bearer KEY`, and lines of `NAME:VALUE`.
pub fn headers<'a>(
    key: Option<&str>,
    lines: impl IntoIterator<Item = &'a str>,
) -> Result<HeaderMap, NotHeaders> {
    let mut headers = HeaderMap::new();
    for line in lines.into_iter().filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.split_once(':').ok_or(NotHeaders::Header)?;
        let name: HeaderName = name.trim().parse().map_err(|_| NotHeaders::Header)?;
        let mut value = HeaderValue::from_str(value.trim()).map_err(|_| NotHeaders::Header)?;
        if OWN.contains(&name) {
            return Err(NotHeaders::Own);
        }
        value.set_sensitive(true);
        headers.append(name, value);
    }
    if let Some(key) = key.filter(|key| !key.is_empty()) {
        let is_visible = key.bytes().all(|byte| byte.is_ascii_graphic());
        let value = HeaderValue::from_str(&format!("Bearer {key}")).ok().filter(|_| is_visible);
        let mut value = value.ok_or(NotHeaders::Key)?;
        value.set_sensitive(true);
        if headers.insert(AUTHORIZATION, value).is_some() {
            return Err(NotHeaders::Twice);
        }
    }
    Ok(headers)
}

/// Reads a time such as `30s`, `5m`, `1h` or `500ms`; without a unit it is in seconds. `None` if it
/// is invalid or exceeds [`MAX_TIMEOUT`].
pub fn duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let duration = match unit {
        "ms" => Duration::from_millis(number),
        "s" | "" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        "h" => Duration::from_secs(number.checked_mul(3_600)?),
        _ => return None,
    };
    Some(duration).filter(|duration| *duration <= MAX_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_a_limit() {
        for (text, seconds) in [
            ("0", Some(0.0)),
            ("30", Some(30.0)),
            ("30s", Some(30.0)),
            ("5m", Some(300.0)),
            ("24h", Some(86_400.0)),
            ("250ms", Some(0.25)),
            ("25h", None),
            ("", None),
            ("s", None),
            ("-1s", None),
            ("1.5s", None),
            ("1d", None),
            ("\u{e9}", None),
            ("18446744073709551615h", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(duration(text).map(|time| time.as_secs_f64()), seconds, "{text}");
        }
    }

    #[test]
    fn headers_are_read_and_never_printed() {
        let read = headers(Some("s3cret"), ["X-Api-Key: s3cret:2 ", "", "x-b:"]).unwrap();
        assert_eq!(read["authorization"], "Bearer s3cret");
        assert_eq!(read["x-api-key"], "s3cret:2");
        assert_eq!(read["x-b"], "");
        assert!(!format!("{read:?}").contains("s3cret"));
        assert!(headers(Some(""), []).unwrap().is_empty());
        for (key, line, expected) in [
            (None, "s3cret", NotHeaders::Header),
            (None, "a b: s3cret", NotHeaders::Header),
            (None, "a: s3cret\r\nx: y", NotHeaders::Header),
            (None, ": s3cret", NotHeaders::Header),
            (None, "host: s3cret", NotHeaders::Own),
            (None, "Last-Event-ID: 7", NotHeaders::Own),
            (Some("s3cret\n"), "a: b", NotHeaders::Key),
            (Some("s3 cret"), "a: b", NotHeaders::Key),
            (Some("s3cret"), "authorization: Basic s3cret", NotHeaders::Twice),
        ] {
            let error = headers(key, [line]).unwrap_err();
            assert_eq!(error, expected, "{line}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
