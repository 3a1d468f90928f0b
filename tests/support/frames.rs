//! SSE events with their ids, as a client that resumes uses them.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde_json::Value;
use uuid::Uuid;

use super::gateway::Response;

/// Whether a frame is an event whose id precedes its data.
fn is_event(frame: &str) -> bool {
    frame
        .strip_prefix("id: ")
        .is_some_and(|frame| frame.lines().nth(1).is_some_and(|line| line.starts_with("data: ")))
}

pub(crate) fn id(frame: &str) -> Option<&str> {
    frame.lines().find_map(|line| line.strip_prefix("id: "))
}

/// The readable form of an event id: `<run id>.<attempt>.<place>.<n>.<check>`. Decoded without the
/// gateway's code, as the documentation describes it.
pub(crate) fn spelt(id: &str) -> String {
    let (named, packed) =
        id.strip_prefix('2').expect(id).rsplit_once('.').unwrap_or_else(|| ("", &id[1..]));
    let packed = BASE64_URL_SAFE_NO_PAD.decode(packed).expect(id);
    let (uuid, rest) = packed.split_at(if named.is_empty() { 16 } else { 0 });
    let run_id = match named.strip_prefix('.') {
        Some(run_id) => run_id.to_owned(),
        None => Uuid::from_slice(uuid).expect(id).to_string(),
    };
    let (check, rest) = rest.split_at(2);
    let mut numbers = rest.split_inclusive(|byte| *byte < 0x80).map(|bytes| {
        bytes.iter().rfold(0, |number: u64, byte| number << 7 | u64::from(byte & 0x7f))
    });
    let mut next = || numbers.next().expect(id);
    let head = next();
    let place = match head % 8 {
        0 => "start".to_owned(),
        1 => next().to_string(),
        2 => format!("{}-{}", next(), next()),
        3 => "close".to_owned(),
        4 => "end".to_owned(),
        kind => panic!("{id}: a place of kind {kind}"),
    };
    let (attempt, n) = (head / 8, next());
    let partly = numbers.next().map(|partly| format!("-{partly}")).unwrap_or_default();
    assert_eq!(numbers.next(), None, "{id}");
    let [high, low] = check else { unreachable!("two bytes") };
    format!("{run_id}.{attempt}.{place}.{n}{partly}.{high:02x}{low:02x}")
}

/// The event id with this readable form.
pub(crate) fn packed(spelt: &str) -> String {
    let fields: Vec<_> = spelt.rsplitn(5, '.').collect();
    let [check, n, place, attempt, run_id] = fields[..] else { panic!("{spelt}") };
    let number = |text: &str| text.parse::<u64>().expect(spelt);
    let mut numbers = match place {
        "start" => vec![0],
        "close" => vec![3],
        "end" => vec![4],
        cursor => match cursor.split_once('-') {
            None => vec![1, number(cursor)],
            Some((time, count)) => vec![2, number(time), number(count)],
        },
    };
    numbers[0] += number(attempt) * 8;
    numbers.extend(n.split('-').map(number));
    let mut bytes = Uuid::parse_str(run_id).expect(spelt).into_bytes().to_vec();
    bytes.extend(u16::from_str_radix(check, 16).expect(spelt).to_be_bytes());
    for mut number in numbers {
        while number > 0x7f {
            bytes.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        bytes.push(number.to_le_bytes()[0]);
    }
    format!("2{}", BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

pub(crate) fn event(frame: &str) -> Value {
    let data = frame.lines().find_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(data.expect(frame)).unwrap()
}

pub(crate) fn kind(frame: &str) -> String {
    event(frame)["type"].as_str().unwrap().to_owned()
}

pub(crate) fn kinds(frames: &[String]) -> Vec<String> {
    frames.iter().map(|frame| kind(frame)).collect()
}

impl Response {
    /// The next `count` events, each as a whole frame.
    pub(crate) async fn frames(&mut self, count: usize) -> Vec<String> {
        let mut frames = Vec::new();
        while frames.len() < count {
            let frame = self.whole_frame().await;
            assert_ne!(frame, "", "the stream ended after {frames:#?}");
            if is_event(&frame) {
                frames.push(frame);
            }
        }
        frames
    }

    /// All remaining events.
    pub(crate) async fn rest_of_frames(&mut self) -> Vec<String> {
        let mut frames = Vec::new();
        loop {
            let frame = self.whole_frame().await;
            if frame.is_empty() {
                return frames;
            }
            if is_event(&frame) {
                frames.push(frame);
            }
        }
    }
}
