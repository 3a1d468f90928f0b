//! The formats of event ids: round trips, fixed examples, and refused texts.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const RUN: &str = "01a200b7-5ee6-7592-b13b-546489e59c9e";

fn of(stage: &str, attempt: u32, n: u32, wire_events: u32, check: u16) -> EventId {
    let stage = match stage {
        "start" => Stage::Start,
        "close" => Stage::Close,
        "end" => Stage::End,
        cursor => Stage::Part(cursor.parse().unwrap()),
    };
    EventId { run_id: RUN.to_owned(), key: EventKey { attempt, stage, n, check }, wire_events }
}

/// Clients store ids, so an id must be the same in every release of version 2.
#[test]
fn an_id_has_the_form_that_is_written_down() {
    for (id, text) in [
        (of("start", 1, 0, 0, 0), "2AaIAt17mdZKxO1RkieWcngAACAA"),
        (of("1795305649395-0", 1, 3, 0, 0xfe), "2AaIAt17mdZKxO1RkieWcngD-CvPpuISgNAAD"),
        (of("1795305649395-12", 2, 3, 1, 0xfe), "2AaIAt17mdZKxO1RkieWcngD-EvPpuISgNAwDAQ"),
        (of("17", 1, 0, 0, 0xfe), "2AaIAt17mdZKxO1RkieWcngD-CREA"),
        (of("close", 1, 300, 2, 0xfe), "2AaIAt17mdZKxO1RkieWcngD-C6wCAg"),
        (of("end", 1, 0, 0, 0), "2AaIAt17mdZKxO1RkieWcngAADAA"),
    ] {
        assert_eq!(id.to_string(), text, "{id:?}");
        assert_eq!(text.parse(), Ok(id));
    }
    let other = EventId { run_id: "a run.with.dots".to_owned(), ..of("end", 1, 0, 0, 0) };
    assert_eq!(other.to_string(), "2.a run.with.dots.AAAMAA");
    assert_eq!("2.a run.with.dots.AAAMAA".parse(), Ok(other));
}

#[test]
fn what_is_no_id_of_ours_is_none() {
    for text in [
        "",
        "1",
        "2",
        "17",
        "3.R.AAAIAA",
        // No version, and others.
        "R.AAAIAA",
        "1.R.AAAIAA",
        "1.R.1.start.0.0000",
        // No run, no `n`, an unknown stage.
        "2..AAAIAA",
        "2.R.AAAI",
        "2.R.AAANAA",
        // Each id has one form only. Not accepted: a UUID as text, an overlong number, a written 0,
        // bits after the last byte, padding, the other alphabet.
        "2.01a200b7-5ee6-7592-b13b-546489e59c9e.AAAIAA",
        "2.R.AAAIgAA",
        "2.R.AAAIAAA",
        "2.R.AAAIAB",
        "2.R.AAAIAA=",
        "2.R.AP4IAA==",
        "2.R.AP4+AA",
        // Surplus bytes, and a number of more than 64 bits.
        "2.R.AAAIAAEA",
        "2.R.AAAJ____________AQAA",
        "2AaIAt17mdZKxO1RkieWcng",
        "2AaIAt17mdZKxO1RkieWcngAACAA.",
    ] {
        assert_eq!(text.parse::<EventId>(), Err(NotAnEventId), "{text}");
    }
    let long = format!("2{}", "A".repeat(100_000));
    assert_eq!(long.parse::<EventId>(), Err(NotAnEventId));
}

fn any_id(usual: bool) -> impl Strategy<Value = EventId> {
    let most = |usual_most: u64, most: u64| 0..=if usual { usual_most } else { most };
    let stage = prop_oneof![
        Just(Stage::Start),
        Just(Stage::Close),
        Just(Stage::End),
        most((1 << 42) - 1, u64::MAX).prop_map(|count| Stage::Part(Cursor::new(count, None))),
        (most((1 << 42) - 1, u64::MAX), most(127, u64::MAX))
            .prop_map(|(time, count)| Stage::Part(Cursor::new(time, Some(count)))),
    ];
    let number = move |usual_most| {
        most(usual_most, u32::MAX.into()).prop_map(|number| u32::try_from(number).unwrap())
    };
    let run_id = if usual {
        any::<u128>().prop_map(|id| Uuid::from_u128(id).to_string()).boxed()
    } else {
        prop_oneof!["[!-~]{1,60}", any::<u128>().prop_map(|id| Uuid::from_u128(id).to_string())]
            .boxed()
    };
    (run_id, number(15), stage, number(16_383), any::<u16>(), number(127)).prop_map(
        |(run_id, attempt, stage, n, check, wire_events)| {
            let key = EventKey { attempt, stage, n, check };
            EventId { run_id, key, wire_events }
        },
    )
}

proptest! {
    #[test]
    fn an_id_is_read_as_it_was_written(id in any_id(false)) {
        prop_assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn an_id_is_at_most_as_long_as_it_says(id in any_id(true)) {
        let text = id.to_string();
        prop_assert_eq!(text.parse(), Ok(id));
        prop_assert!(text.len() <= EventId::USUAL_BYTES, "{} bytes: {}", text.len(), text);
        prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
    }

    #[test]
    fn no_text_but_its_own_is_read_as_an_id(text in "2(\\.R\\.)?[A-Za-z0-9_-]{4,60}") {
        if let Ok(id) = text.parse::<EventId>() {
            prop_assert_eq!(id.to_string(), text);
        }
    }
}
