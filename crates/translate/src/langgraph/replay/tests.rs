//! Which frames of a joined stream are repeats.

use super::*;

fn take(replay: &mut Replay, (id, digest): (&str, u32)) -> char {
    letter(replay.classify(id.parse().ok(), digest))
}

fn letter(novelty: Novelty) -> char {
    match novelty {
        Novelty::New => 'n',
        Novelty::Repeat => 'r',
        Novelty::Doubtful => '?',
        Novelty::AfterGap => 'g',
        Novelty::OfAnotherAttempt => 'x',
        Novelty::Last { is_after_gap: true } => 'l',
        Novelty::Last { is_after_gap: false } => 'L',
    }
}

fn take_all(replay: &mut Replay, frames: &[(&str, u32)]) -> String {
    frames.iter().map(|frame| take(replay, *frame)).collect()
}

/// The novelty of each frame of a first connection, given as id and digest.
fn novelties(joined_at: Option<u64>, frames: &[(&str, u32)]) -> String {
    let mut replay = Replay::joined();
    replay.answered_at(joined_at);
    take_all(&mut replay, frames)
}

#[test]
fn the_block_of_repeats_begins_where_the_ids_step_back() {
    let frames = [
        ("7-0", 1),
        ("8-0", 2),
        ("8-0", 3),
        ("9-0", 4),
        ("9-0", 5),
        // The block steps back, and reaches the highest id again.
        ("8-0", 3),
        ("9-0", 4),
        ("9-0", 5),
        // A third frame of the same millisecond, then a higher id.
        ("9-0", 4),
        ("10-0", 6),
    ];
    assert_eq!(novelties(Some(8), &frames), "nnnnnrrrnn");
    assert_eq!(novelties(None, &frames), "nnnnnrrrnn");
}

#[test]
fn an_equal_frame_of_one_millisecond_is_doubtful_around_the_join() {
    let pair = [("7-0", 1), ("9-0", 2), ("9-0", 2)];
    assert_eq!(novelties(Some(8), &pair), "nn?");
    assert_eq!(novelties(Some(10), &pair), "nnn", "it is history");
    let late = [("7-0", 1), ("6000-0", 2), ("6000-0", 2)];
    assert_eq!(novelties(Some(8), &late), "nnn", "the block would have come by then");
    // The block may repeat more than one frame without a step back.
    assert_eq!(novelties(Some(8), &[("9-0", 1), ("9-0", 2), ("9-0", 1)]), "nn?");
    let behind = [("7-0", 1), ("9-0", 2), ("7-0", 1), ("9-0", 2), ("10-0", 3), ("10-0", 3)];
    assert_eq!(novelties(Some(8), &behind), "nnrrnn", "the block was there");
    assert_eq!(take_all(&mut Replay::started(), &pair), "nnn", "who starts a run gets it once");
}

#[test]
fn the_store_decides_whether_an_equal_frame_is_a_repeat() {
    for (again, expected) in [
        // Two equal frames.
        ([("9-0", 2), ("9-0", 2), ("10-0", 2)], "rnn"),
        // A repeat.
        ([("9-0", 2), ("10-0", 3), ("10-0", 4)], "rnn"),
    ] {
        let mut replay = Replay::joined();
        replay.answered_at(Some(8));
        assert_eq!(take_all(&mut replay, &[("7-0", 1), ("9-0", 2), ("9-0", 2)]), "nn?");
        assert_eq!(replay.rejoin(true).unwrap().to_string(), "7-0");
        replay.answered_at(Some(9));
        assert_eq!(take_all(&mut replay, &again), expected);
    }
}

#[test]
fn a_doubt_that_never_ends_is_settled_by_a_guess() {
    let mut replay = Replay::joined();
    for n in 0..MAX_DOUBTS {
        let id = format!("{}-0", 10 + n);
        assert_eq!(take(&mut replay, (&id, 1)), 'n');
        assert_eq!(take(&mut replay, (&id, 1)), '?');
        replay.rejoin(true);
        assert_eq!(take(&mut replay, (&id, 1)), 'r');
    }
    assert_eq!(take_all(&mut replay, &[("99-0", 1), ("99-0", 1), ("99-0", 1)]), "nrn");
}

#[test]
fn a_new_connection_begins_with_what_was_seen_last() {
    let mut replay = Replay::started();
    assert_eq!(take_all(&mut replay, &[("7-0", 1), ("9-0", 2), ("9-0", 3)]), "nnn");
    assert_eq!(replay.rejoin(true).unwrap().to_string(), "7-0");
    assert!(!replay.is_settled());
    assert_eq!(take(&mut replay, ("9-0", 2)), 'r');
    // The connection is lost again before the seam. Nothing is forgotten.
    assert_eq!(replay.rejoin(true).unwrap().to_string(), "7-0");
    assert_eq!(take_all(&mut replay, &[("9-0", 2), ("9-0", 3)]), "rr");
    assert!(replay.is_settled());
    // A new frame, the block of repeats, a live frame.
    let more = [("9-0", 4), ("11-0", 5), ("9-0", 4), ("11-0", 5), ("12-0", 6)];
    assert_eq!(take_all(&mut replay, &more), "nnrrn");
    assert_eq!(replay.rejoin(true).unwrap().to_string(), "11-0");
}

#[test]
fn with_one_id_only_the_new_connection_begins_at_the_beginning() {
    let mut replay = Replay::started();
    assert_eq!(take(&mut replay, ("7-0", 1)), 'n');
    assert_eq!(replay.rejoin(true), None);
    assert_eq!(take_all(&mut replay, &[("7-0", 1), ("8-0", 2)]), "rn");
    let mut replay = Replay::joined();
    assert_eq!(replay.rejoin(false), None);
    assert_eq!(take_all(&mut replay, &[("7-0", 1), ("8-0", 2)]), "nn");
}

#[test]
fn what_does_not_come_again_may_be_missing() {
    let mut replay = Replay::started();
    take_all(&mut replay, &[("7-0", 1), ("9-0", 2), ("9-0", 3)]);
    replay.rejoin(true);
    assert_eq!(take_all(&mut replay, &[("9-0", 2), ("11-0", 5), ("12-0", 6)]), "rgn");
    // No connection can start after frames without ids.
    let mut replay = Replay::started();
    assert_eq!(take_all(&mut replay, &[("", 1), ("", 1)]), "nn");
    assert_eq!(replay.rejoin(true), None);
    assert_eq!(take_all(&mut replay, &[("", 1), ("", 1)]), "gn");
}

#[test]
fn an_id_that_is_used_for_something_else_is_of_another_attempt() {
    let mut replay = Replay::started();
    take_all(&mut replay, &[("7", 1), ("8", 2), ("9", 3)]);
    assert_eq!(replay.rejoin(true).unwrap().to_string(), "8");
    assert_eq!(take(&mut replay, ("9", 4)), 'x');
    replay.forget();
    assert_eq!(replay.rejoin(true), None);
    // The first frame shows by its id that the count starts again.
    assert_eq!(take_all(&mut replay, &[("0", 1), ("1", 2)]), "gn");
}

#[test]
fn what_is_not_after_the_id_that_was_asked_for_is_of_another_attempt() {
    let mut replay = Replay::started();
    take_all(&mut replay, &[("0", 1), ("1", 2), ("2", 3), ("3", 4)]);
    assert_eq!(replay.rejoin(true).unwrap().to_string(), "2");
    assert_eq!(take(&mut replay, ("0", 1)), 'x');
}

#[test]
fn the_ids_of_the_javascript_server_are_counted() {
    let mut replay = Replay::joined();
    replay.answered_at(Some(1_795_338_987_000));
    for frame in [("9", 1), ("10", 1), ("11", 1), ("x", 1), ("x", 1), ("", 1)] {
        assert_eq!(take(&mut replay, frame), 'n', "{frame:?}");
    }
    assert_eq!(replay.is_over(), None);
}

#[test]
fn the_history_is_over_with_what_came_after_the_join() {
    let mut replay = Replay::joined();
    replay.answered_at(Some(1_795_338_987_000));
    assert_eq!(replay.is_over(), None);
    for (id, is_over) in [("1795338980000-0", false), ("1795338987149-0", true)] {
        take(&mut replay, (id, 1));
        assert_eq!(replay.is_over(), Some(is_over), "{id}");
    }
    // Or with the block of repeats, if the clocks differ.
    let mut replay = Replay::joined();
    replay.answered_at(Some(1_795_338_999_000));
    for (id, is_over) in
        [("1795338980000-0", false), ("1795338981000-0", false), ("1795338980000-0", true)]
    {
        take(&mut replay, (id, 1));
        assert_eq!(replay.is_over(), Some(is_over), "{id}");
    }
}

/// A frame with this id, event and data.
fn frame<'a>(id: &'a str, event: &'a str, data: &'a str) -> Frame<'a> {
    let id = (!id.is_empty()).then_some(id.into());
    Frame { event: Some(event.into()), data: Some(data.into()), id, retry: None }
}

/// The novelty of each frame of a server that counts its frames.
fn counted(replay: &mut Replay, frames: &[(&str, u32)]) -> String {
    let mut counted = |(count, data): &(&str, u32)| {
        let (id, data) = (format!("R_event_{count}"), data.to_string());
        letter(replay.take(&frame(&id, "values", &data)).novelty)
    };
    frames.iter().map(&mut counted).collect()
}

#[test]
fn a_frame_is_classified_by_its_event_its_id_and_how_the_server_writes_ids() {
    let time = "R_event_1798000000000";
    for (earlier, frame, expected, has_cursor) in [
        (&[][..], frame("7-0", "values", "1"), 'n', true),
        (&[], frame("", "values", "1"), 'n', false),
        (&[], frame("no id", "values", "1"), 'n', false),
        // The start of another attempt, and an error, are never after a gap. The latter has no place
        // in the order.
        (&["7-0", "9-0"], frame("12-0", "values", "1"), 'g', true),
        (&["7-0", "9-0"], frame("12-0", "metadata", "1"), 'n', true),
        (&["7-0", "9-0"], frame("12-0", "error", "1"), 'n', false),
        (&["7-0", "9-0"], frame("7-0", "error", "1"), 'n', false),
        (&["7-0", "9-0"], frame("9-0", "values", "0"), 'r', true),
        (&["7-0", "9-0"], frame("9-0", "values", "1"), 'x', true),
        // A time among counts.
        (&["R_event_1", "R_event_3"], frame(time, "values", "1"), 'l', false),
        (&["R_event_1", "R_event_3"], frame(time, "metadata", "1"), 'L', false),
        (&["R_event_1", "R_event_3"], frame(time, "error", "1"), 'n', false),
        (&["R_event_1", "R_event_3"], frame("R_event_9", "values", "1"), '?', true),
        (&[], frame("1798000000000-0", "values", "1"), 'n', true),
    ] {
        let mut replay = Replay::started();
        for id in earlier {
            replay.take(&self::frame(id, "values", "0"));
        }
        if !earlier.is_empty() {
            replay.rejoin(true);
        }
        let taken = replay.take(&frame);
        let what = (letter(taken.novelty), taken.cursor.is_some());
        assert_eq!(what, (expected, has_cursor), "{frame:?} after {earlier:?}");
    }
}

#[test]
fn frames_that_a_count_lacks_are_asked_for_once() {
    let mut replay = Replay::started();
    let frames = [("1", 1), ("3", 2), ("5", 3), ("11", 6)];
    assert_eq!(counted(&mut replay, &frames), "nnn?");
    // The store has them.
    assert_eq!(replay.rejoin(true).unwrap().to_string(), "3");
    let rest = [("5", 3), ("7", 4), ("9", 5), ("11", 6), ("13", 7)];
    assert_eq!(counted(&mut replay, &rest), "rnnnn");
    // The next ones are lost: after one more connection the step is what there is.
    assert_eq!(counted(&mut replay, &[("19", 9)]), "?");
    assert_eq!(replay.rejoin(true).unwrap().to_string(), "11");
    assert_eq!(counted(&mut replay, &[("13", 7), ("19", 9), ("21", 10)]), "rgn");
}

#[test]
fn the_first_frames_of_a_count_are_asked_for_by_the_client_that_started_the_run() {
    let mut replay = Replay::started();
    assert_eq!(counted(&mut replay, &[("5", 3)]), "?");
    assert_eq!(replay.rejoin(false), None);
    assert_eq!(counted(&mut replay, &[("1", 1), ("3", 2), ("5", 3)]), "nnn");
    // The store of a joined run may begin anywhere.
    assert_eq!(counted(&mut Replay::joined(), &[("20001", 1), ("20003", 2), ("20009", 3)]), "nn?");
    // In steps of 1 too, and if the count begins again.
    let steps = [("1", 1), ("2", 2), ("3", 3), ("1", 4), ("2", 5)];
    assert_eq!(counted(&mut Replay::started(), &steps), "nnnnn");
}
