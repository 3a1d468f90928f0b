//! What is repeated is shown once.

use serde_json::{Value, json};

use super::*;

fn take(seen: &mut Seen, update: &Value) -> Option<Vec<Value>> {
    let update = json::raw(update.to_string());
    match seen.take(&update) {
        Verdict::Pass => None,
        Verdict::Instead(updates) => {
            Some(updates.iter().map(|one| serde_json::from_str(one.get()).unwrap()).collect())
        }
    }
}

fn said(id: &str, text: &str) -> Value {
    let content = json!({"type": "text", "text": text});
    json!({"sessionUpdate": "agent_message_chunk", "content": content, "messageId": id})
}

#[test]
fn a_text_goes_on_where_it_was_cut() {
    let mut seen = Seen::new(true);
    assert_eq!(take(&mut seen, &said("a", "gr")), None);
    assert_eq!(take(&mut seen, &said("a", "ün")), None);
    seen.repeat();
    assert_eq!(take(&mut seen, &said("a", "g")), Some(vec![]));
    assert_eq!(take(&mut seen, &said("a", "rünes")), Some(vec![said("a", "es")]));
    assert_eq!(take(&mut seen, &said("b", "new")), None);
    seen.repeated();
    assert_eq!(take(&mut seen, &said("a", "!")), None);
}

#[test]
fn a_text_that_is_another_one_is_sent_whole_under_an_id_of_its_own() {
    for again in [["gr", "een and blue"], ["gräss", "lich"], ["g", "raz more"]] {
        let mut seen = Seen::new(true);
        take(&mut seen, &said("a", "grün"));
        seen.repeat();
        let mut whole = String::new();
        for piece in again {
            for update in take(&mut seen, &said("a", piece)).unwrap() {
                assert_eq!(update["messageId"], "a~1");
                whole += update["content"]["text"].as_str().unwrap();
            }
        }
        assert_eq!(whole, again.concat());
        seen.repeat();
        assert_eq!(take(&mut seen, &said("a", &again.concat())), Some(vec![]));
        assert_eq!(take(&mut seen, &said("a", ".")), Some(vec![said("a~1", ".")]));
    }
}

#[test]
fn a_picture_is_repeated_whole_or_not_at_all() {
    let picture = |data: &str| {
        let content = json!({"type": "image", "data": data, "mimeType": "image/png"});
        json!({"sessionUpdate": "agent_message_chunk", "content": content, "messageId": "a"})
    };
    let mut seen = Seen::new(true);
    take(&mut seen, &said("a", "see "));
    take(&mut seen, &picture("AAAA"));
    seen.repeat();
    assert_eq!(take(&mut seen, &said("a", "see ")), Some(vec![]));
    assert_eq!(take(&mut seen, &picture("AAAA")), Some(vec![]));
    assert_eq!(take(&mut seen, &picture("BBBB")), None);
}

#[test]
fn only_what_is_new_about_a_call_is_repeated() {
    let call =
        json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "kind": "read"});
    let status = |status: &str| json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": status});
    let mut seen = Seen::new(true);
    assert_eq!(take(&mut seen, &call), None);
    assert_eq!(take(&mut seen, &status("in_progress")), None);
    seen.repeat();
    assert_eq!(take(&mut seen, &call), Some(vec![]));
    assert_eq!(take(&mut seen, &status("pending")), Some(vec![]));
    let mut whole = call.clone();
    whole["status"] = json!("completed");
    assert_eq!(take(&mut seen, &whole), Some(vec![status("completed")]));
    seen.repeated();
    // A live run whose stream begins again.
    assert_eq!(take(&mut seen, &call), Some(vec![]));
    let other = json!({"sessionUpdate": "tool_call", "toolCallId": "d", "title": "t"});
    assert_eq!(take(&mut seen, &other), None);
}

#[test]
fn the_last_plan_of_a_history_is_shown_if_it_is_news() {
    let plan = |n: u64| json!({"sessionUpdate": "plan", "entries": [n]});
    let mut seen = Seen::new(true);
    assert_eq!(take(&mut seen, &plan(1)), None);
    for (repeated, shown) in [([0, 1], 0), ([1, 2], 1), ([1, 2], 0)] {
        seen.repeat();
        for n in repeated {
            assert_eq!(take(&mut seen, &plan(n)), Some(vec![]));
        }
        assert_eq!(seen.repeated().len(), shown, "{repeated:?}");
    }
}

#[test]
fn the_history_of_a_resumed_session_is_not_shown() {
    let mut seen = Seen::new(false);
    take(&mut seen, &said("late", "x"));
    seen.prompted("p");
    seen.repeat();
    let mut prompt = said("p", "hi");
    prompt["sessionUpdate"] = json!("user_message_chunk");
    assert_eq!(take(&mut seen, &said("early", "long ago")), Some(vec![]));
    assert_eq!(take(&mut seen, &said("late", "xy")), Some(vec![said("late", "y")]));
    assert_eq!(take(&mut seen, &prompt), Some(vec![]));
    assert_eq!(take(&mut seen, &said("new", "z")), None);
}

#[test]
fn what_is_known_is_limited_and_what_was_forgotten_is_not_shown_again() {
    let mut seen = Seen::new(true);
    for id in 0..=MAX_KNOWN {
        take(&mut seen, &said(&id.to_string(), "x"));
    }
    assert_eq!(seen.messages.len(), MAX_KNOWN);
    seen.repeat();
    assert_eq!(take(&mut seen, &said("0", "x")), Some(vec![]));
    assert_eq!(take(&mut seen, &said("1", "x")), Some(vec![]));
    assert_eq!(take(&mut seen, &said("more", "x")), None);
}
