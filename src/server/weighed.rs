//! Lists of names with weights, as `Accept` and `Accept-Encoding` have them (RFC 9110, 12.4.2).

/// The names of a header's list in their order, in small letters and without parameters, each with
/// its weight: 1 where there is none, or none that is a number, and 0 for what the client refuses.
pub(super) fn weighed(header: &str) -> impl Iterator<Item = (String, f32)> {
    header.split(',').map(|member| {
        let mut parts = member.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let mut weights = parts.filter_map(|part| {
            let (name, weight) = part.split_once('=')?;
            name.trim().eq_ignore_ascii_case("q").then_some(weight.trim())
        });
        let weight = weights.next_back().and_then(|weight| weight.parse().ok());
        (name, weight.filter(|weight: &f32| weight.is_finite()).unwrap_or(1.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_weight() {
        for (header, expected) in [
            ("gzip", ("gzip", 1.0)),
            (" GZip ; q=0.5", ("gzip", 0.5)),
            ("gzip;q=0", ("gzip", 0.0)),
            ("gzip; Q = 0.000", ("gzip", 0.0)),
            ("gzip;q=x", ("gzip", 1.0)),
            ("gzip;q=NaN", ("gzip", 1.0)),
            ("gzip;q=", ("gzip", 1.0)),
            ("text/html;level=0;q=0.25", ("text/html", 0.25)),
            ("", ("", 1.0)),
        ] {
            let (name, weight) = weighed(header).next().unwrap();
            assert_eq!(
                (&*name, weight.to_bits()),
                (expected.0, f32::to_bits(expected.1)),
                "{header}"
            );
        }
        assert_eq!(weighed("a, b;q=0,c").filter(|(_, weight)| *weight > 0.0).count(), 2);
    }
}
