//! Header lists of names with weights, such as `Accept` and `Accept-Encoding` (RFC 9110, 12.4.2).

/// The weight of a name without one.
const WHOLE: u16 = 1_000;

/// The names of a list in order, without parameters, each with its weight in thousandths. The
/// weight is 1,000 if it is missing or malformed, and 0 for a name that the client refuses.
pub(in crate::server) fn weighed(header: &str) -> impl Iterator<Item = (&str, u16)> {
    header.split(',').map(|member| {
        let mut parts = member.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("q").then(|| weight(value.trim()))
        });
        (name, weight.unwrap_or(WHOLE))
    })
}

fn weight(text: &str) -> u16 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "0" if is_number => format!("{part:0<3}").parse().unwrap_or(WHOLE),
        _ => WHOLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_weight() {
        for (header, expected) in [
            ("gzip", ("gzip", 1_000)),
            (" GZip ; q=0.5", ("GZip", 500)),
            ("gzip;q=0", ("gzip", 0)),
            ("gzip; Q = 0.000", ("gzip", 0)),
            ("gzip;q=0.", ("gzip", 0)),
            ("gzip;q=1.0", ("gzip", 1_000)),
            ("gzip;q=0.0000", ("gzip", 1_000)),
            ("gzip;q=x", ("gzip", 1_000)),
            ("gzip;q=NaN", ("gzip", 1_000)),
            ("gzip;q=", ("gzip", 1_000)),
            ("text/html;level=0;q=0.25", ("text/html", 250)),
            ("", ("", 1_000)),
        ] {
            assert_eq!(weighed(header).next(), Some(expected), "{header}");
        }
        assert_eq!(weighed("a, b;q=0,c").filter(|(_, weight)| *weight > 0).count(), 2);
    }
}
