//! The output for a stream, for one that starts over, and for one that takes text back.

use proptest::collection::vec;
use proptest::prelude::*;

use super::messages::MAX_KEPT_BYTES;
use super::*;
use crate::terminal::harmless;
use threadway_translate::json::Text;

/// The output of a printer for events, given as one JSON document per line.
fn print(printer: &mut Printer, events: &str) -> String {
    let mut out = String::new();
    for line in events.lines().map(str::trim).filter(|line| !line.is_empty()) {
        printer.print(&Event::read(line).unwrap(), &mut out);
    }
    out
}

/// The output of a new printer for a run with these events.
fn print_run(events: &str) -> String {
    print(&mut Printer::default(), &run(events))
}

fn run(events: &str) -> String {
    format!(
        r#"{{"type":"RUN_STARTED","threadId":"T","runId":"R"}}
        {events}
        {{"type":"RUN_FINISHED","threadId":"T","runId":"R"}}"#
    )
}

fn started(run_id: &str) -> String {
    format!("{{\"type\":\"RUN_STARTED\",\"threadId\":\"T\",\"runId\":\"{run_id}\"}}\n")
}

fn finished(run_id: &str) -> String {
    format!("{{\"type\":\"RUN_FINISHED\",\"threadId\":\"T\",\"runId\":\"{run_id}\"}}\n")
}

fn start(id: &str) -> String {
    format!("{{\"type\":\"TEXT_MESSAGE_START\",\"messageId\":\"{id}\",\"role\":\"assistant\"}}\n")
}

/// `delta` is escaped.
fn token(id: &str, delta: &str) -> String {
    format!("{{\"type\":\"TEXT_MESSAGE_CONTENT\",\"messageId\":\"{id}\",\"delta\":\"{delta}\"}}\n")
}

fn snapshot(messages: &[&str]) -> String {
    format!("{{\"type\":\"MESSAGES_SNAPSHOT\",\"messages\":[{}]}}\n", messages.join(","))
}

fn message(id: &str, role: &str, content: &str) -> String {
    format!(r#"{{"id":"{id}","role":"{role}","content":"{content}"}}"#)
}

#[test]
fn a_run_is_printed_line_by_line() {
    let out = print_run(
        r#"{"type":"STATE_SNAPSHOT","snapshot":{"count":1.10,"list":[]}}
        {"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user","content":"Where?"}]}
        {"type":"STEP_STARTED","stepName":"model"}
        {"type":"REASONING_START","messageId":"t"}
        {"type":"REASONING_MESSAGE_START","messageId":"t","role":"reasoning"}
        {"type":"REASONING_MESSAGE_CONTENT","messageId":"t","delta":"I could\nask "}
        {"type":"REASONING_MESSAGE_CONTENT","messageId":"t","delta":"around."}
        {"type":"REASONING_MESSAGE_END","messageId":"t"}
        {"type":"TEXT_MESSAGE_START","messageId":"a","role":"assistant"}
        {"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"Let me "}
        {"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"look:\n"}
        {"type":"TEXT_MESSAGE_END","messageId":"a"}
        {"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"weather","parentMessageId":"a"}
        {"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{\"city\":"}
        {"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"\"Oslo\"}"}
        {"type":"TOOL_CALL_END","toolCallId":"c"}
        {"type":"TOOL_CALL_RESULT","messageId":"r","toolCallId":"c","content":"12\ndegrees","role":"tool"}
        {"type":"STATE_DELTA","delta":[{"op":"replace","path":"/count","value":2.50},{"op":"add","path":"/list/-","value":"x"},{"op":"remove","path":"/list"}]}
        {"type":"CUSTOM","name":"progress","value":{"done":1}}
        {"type":"RAW","event":{}}
        {"type":"STEP_FINISHED","stepName":"model"}"#,
    );
    assert_eq!(
        out,
        r#"--- run R
user: Where?
assistant: Let me look:
  -> weather({"city":"Oslo"})
  <- weather: 12\ndegrees
--- run R finished
"#
    );
}

#[test]
fn a_token_is_printed_as_it_comes_and_its_line_goes_on() {
    let mut printer = Printer::default();
    assert_eq!(print(&mut printer, &(started("R") + &start("a"))), "--- run R\n");
    assert_eq!(print(&mut printer, &token("a", "It ")), "assistant: It ");
    assert_eq!(print(&mut printer, &token("a", "is.")), "is.");
    // Another message in between.
    assert_eq!(print(&mut printer, &token("b", "No")), "\nassistant: No");
    assert_eq!(print(&mut printer, &token("a", " Yes.")), "\nassistant: .. Yes.");
    let mut out = String::new();
    printer.pause(&mut out);
    printer.pause(&mut out);
    assert_eq!(out, "\n");
}

#[test]
fn a_stream_that_starts_over_prints_only_what_is_new() {
    let mut printer = Printer::default();
    let first = started("R")
        + r#"{"type":"STATE_SNAPSHOT","snapshot":{"n":1}}
        {"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":2}]}
        {"type":"CUSTOM","name":"x","value":1}
        {"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"helper"}
        {"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"look"}
        {"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{\"a\": 1}"}
        {"type":"TOOL_CALL_END","toolCallId":"c"}
        {"type":"TOOL_CALL_RESULT","messageId":"r","toolCallId":"c","content":"seen"}
        {"type":"REASONING_MESSAGE_START","messageId":"t"}
        {"type":"REASONING_MESSAGE_CONTENT","messageId":"t","delta":"Hm"}
        "#
        + &start("a")
        + &token("a", "One two");
    let out = print(&mut printer, &first);
    assert!(out.ends_with("assistant: One two"), "{out}");
    let again = started("R")
        + r#"{"type":"STATE_SNAPSHOT","snapshot":{"n":2}}
        {"type":"MESSAGES_SNAPSHOT","messages":[{"id":"c0","role":"assistant","content":"","toolCalls":[{"id":"c","type":"function","function":{"name":"look","arguments":"{\"a\":1}"}}]},{"id":"r","role":"tool","toolCallId":"c","content":"seen"},{"id":"t","role":"reasoning","content":"Hm"},{"id":"a","role":"assistant","content":"One two three"}]}
        {"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"helper"}
        "#
        + &start("a")
        + &token("a", " four")
        + &finished("R");
    assert_eq!(print(&mut printer, &again), " three four\n--- run R finished\n");
    // The next run continues from that state.
    let next = started("S")
        + r#"{"type":"STATE_SNAPSHOT","snapshot":{"n":3}}
        "#
        + &snapshot(&[&message("a", "assistant", "One two three four")])
        + &finished("S");
    assert_eq!(print(&mut printer, &next), "--- run S\n--- run S finished\n");
}

#[test]
fn text_that_is_sent_again_is_printed_once() {
    let mut printer = Printer::default();
    print(&mut printer, &(started("R") + &start("a") + &token("a", "One two")));
    // The stream missed the beginning, so the snapshot lacks it.
    let again = started("R") + &snapshot(&[]) + &start("a") + &token("a", "One");
    assert_eq!(print(&mut printer, &again), "");
    assert_eq!(print(&mut printer, &token("a", " two thr")), " thr");
    assert_eq!(
        print(&mut printer, &(token("a", "ee") + &finished("R"))),
        "ee\n--- run R finished\n"
    );
}

#[test]
fn a_contradicting_snapshot_is_printed_with_a_line() {
    let mut printer = Printer::default();
    print(&mut printer, &(started("R") + &start("a") + &token("a", "It is five")));
    let out = print(&mut printer, &snapshot(&[&message("a", "assistant", "It is four.")]));
    assert_eq!(out, "\n~ assistant takes that back, and now says:\nassistant: It is four.");
    // The same with pieces.
    let again = started("R") + &snapshot(&[]) + &token("a", "It was");
    let out = print(&mut printer, &again);
    assert_eq!(out, "\n~ assistant takes that back, and now says:\nassistant: It was");
    assert_eq!(print(&mut printer, &finished("R")), "\n--- run R finished\n");
}

#[test]
fn a_call_that_is_still_being_made_waits_for_its_end() {
    let call = |args: &str| {
        format!(
            r#"{{"id":"m","role":"assistant","toolCalls":[{{"id":"c","type":"function","function":{{"name":"look","arguments":"{args}"}}}}]}}"#
        )
    };
    let mut printer = Printer::default();
    let half = started("R")
        + &snapshot(&[&call(r#"{\"a\":"#)])
        + r#"{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"look"}
        {"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"1}"}
        "#;
    assert_eq!(print(&mut printer, &half), "--- run R\n");
    let end = r#"{"type":"TOOL_CALL_END","toolCallId":"c"}"#;
    assert_eq!(print(&mut printer, end), "  -> look({\"a\":1})\n");
    assert_eq!(print(&mut printer, &snapshot(&[&call(r#"{\"a\": 1}"#)])), "");
}

#[test]
fn each_end_of_a_run_is_printed() {
    let end = |event: &str| print(&mut Printer::default(), &(started("R") + event));
    let finished =
        |outcome| end(&format!(r#"{{"type":"RUN_FINISHED","runId":"R","outcome":{outcome}}}"#));
    assert_eq!(finished(r#"{"type":"success"}"#), "--- run R\n--- run R finished\n");
    assert_eq!(finished(r#"{"type":"cancelled"}"#), "--- run R\n--- run R was cancelled\n");
    assert_eq!(
        finished(
            r#"{"type":"interrupt","interrupts":[{"id":"i:0","reason":"approval","message":"Send?"},{"id":"i:1","reason":"input"}]}"#
        ),
        "--- run R\n? approval: Send? (interrupt i:0)\n? input (interrupt i:1)\n--- run R was interrupted\n"
    );
    assert_eq!(
        end(r#"{"type":"RUN_ERROR","message":"no\nway","code":"ValueError"}"#),
        "--- run R\n--- run R failed: ValueError: no\\nway\n"
    );
}

#[test]
fn an_idle_thread_is_printed_once_and_again_only_if_it_has_changed() {
    let rest = |id: &str, content: &str| {
        started(id)
            + &snapshot(&[&message("a", "assistant", content)])
            + &format!(
                r#"{{"type":"RUN_FINISHED","runId":"{id}","outcome":{{"type":"interrupt","interrupts":[{{"id":"i","reason":"input"}}]}},"metadata":{{"langgraph":{{"error":{{"code":"E","message":"no"}}}}}}}}"#
            )
    };
    let mut printer = Printer::default();
    assert_eq!(
        print(&mut printer, &rest("connect-1", "Hi")),
        "--- at rest, connect-1\nassistant: Hi\n? input (interrupt i)\n! the last run failed: E: no\n"
    );
    assert_eq!(print(&mut printer, &rest("connect-1", "Hi")), "");
    assert_eq!(print(&mut printer, &rest("connect-2", "Hi")), "");
    assert_eq!(
        print(&mut printer, &rest("connect-3", "Hi there")),
        "--- at rest, connect-3\nassistant: .. there\n"
    );
}

#[test]
fn an_unknown_thread_is_printed_too() {
    let nothing = started("connect-T") + &finished("connect-T");
    assert_eq!(print(&mut Printer::default(), &nothing), "--- at rest, connect-T\n");
}

#[test]
fn a_missed_end_of_a_run_is_printed() {
    let mut printer = Printer::default();
    let events = started("R") + &start("a") + &token("a", "One") + &started("S");
    assert_eq!(
        print(&mut printer, &events),
        "--- run R\nassistant: One\n--- run R: its end was not seen\n--- run S\n"
    );
}

#[test]
fn a_failure_of_an_idle_thread_is_printed_once() {
    let mut printer = Printer::default();
    let failing =
        started("connect-1") + r#"{"type":"RUN_ERROR","message":"away","code":"upstream_lost"}"#;
    let expected = "--- at rest, connect-1 failed: upstream_lost: away\n";
    assert_eq!(print(&mut printer, &failing), format!("--- at rest, connect-1\n{expected}"));
    assert_eq!(print(&mut printer, &failing), "");
    assert_eq!(print(&mut printer, &(started("connect-1") + &finished("connect-1"))), "");
    assert_eq!(print(&mut printer, &failing), format!("--- at rest, connect-1\n{expected}"));
}

#[test]
fn a_surrogate_pair_that_is_cut_is_printed_whole() {
    for tokens in [
        token("a", r"x\ud83d") + &token("a", r"\ude00y"),
        snapshot(&[&message("a", "assistant", r"x\ud83d")]) + &token("a", r"\ude00y"),
        token("a", r"x\ud83d") + &snapshot(&[&message("a", "assistant", r"x\ud83d\ude00y")]),
        token("a", r"x\ud83d") + &snapshot(&[]) + &token("a", r"x\ud83d") + &token("a", r"\ude00y"),
    ] {
        assert_eq!(print(&mut Printer::default(), &tokens), "assistant: x😀y");
    }
    // Not half a pair: the backslash is escaped itself.
    assert_eq!(print(&mut Printer::default(), &token("a", r"\\ud83d")), "assistant: \\ud83d");
    let lone = token("a", r"\ud83d") + &token("a", "x");
    assert_eq!(print(&mut Printer::default(), &lone), "assistant: \u{fffd}x");
}

#[test]
fn a_model_cannot_steer_the_terminal() {
    let out = print_run(
        &(token("a", r"\u001b[2Jx\r\ty\u009b")
            + r#"{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"a\u001b"}
            {"type":"TOOL_CALL_RESULT","messageId":"r","toolCallId":"c","content":"\u001b"}"#),
    );
    assert_eq!(
        out,
        "--- run R\nassistant: \\u{1b}[2Jx\\r\ty\\u{9b}\n  -> a\\u{1b}()\n  <- a\\u{1b}: \\u{1b}\n\
         --- run R finished\n"
    );
}

#[test]
fn a_long_value_is_cut_on_its_line() {
    let out =
        print_run(&format!(r#"{{"type":"TOOL_CALL_RESULT","content":"{}"}}"#, "ä".repeat(300)));
    let value = format!("  <-: {}.. (100 more)\n", "ä".repeat(200));
    assert_eq!(out, format!("--- run R\n{value}--- run R finished\n"));
}

#[test]
fn the_oldest_are_forgotten_beyond_the_limit() {
    let mut printer = Printer::default();
    let big = "x".repeat(MAX_KEPT_BYTES / 4);
    let mut out = String::new();
    for id in 0..6 {
        let delta = Text::new(&big);
        printer.print(&Event::Delta { id: id.to_string(), delta }, &mut out);
        out.clear();
    }
    let kept: Vec<_> = printer.messages.keys().map(String::as_str).collect();
    assert_eq!(kept, ["3", "4", "5"]);
    assert!(printer.stored_bytes <= MAX_KEPT_BYTES);
}

/// A step of a stream. Messages are named by their index.
#[derive(Clone, Debug)]
enum Step {
    /// The next token of a message.
    Speak(usize),
    /// The stream starts over. The snapshot holds the marked messages as far as they were sent; the
    /// others are sent again from the beginning.
    StartOver(Vec<bool>),
    /// A snapshot of everything.
    Snapshot,
}

/// The number of messages.
const SPEAKERS: usize = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..SPEAKERS).prop_map(Step::Speak),
        2 => vec(any::<bool>(), SPEAKERS).prop_map(Step::StartOver),
        1 => Just(Step::Snapshot),
    ];
    vec(step, 0..40)
}

/// The printed text of each message; lines begin with its label.
fn texts(printed: &str) -> Vec<String> {
    let text = |speaker: usize| {
        let label = format!("assistant (s{speaker}): ");
        let lines = printed.lines().filter_map(|line| line.strip_prefix(&label));
        lines.map(|text| text.strip_prefix("..").unwrap_or(text)).collect()
    };
    (0..SPEAKERS).map(text).collect()
}

proptest! {
    #[test]
    fn each_token_is_printed_once_however_often_the_stream_starts_over(steps in steps()) {
        let mut printer = Printer::default();
        let mut said = vec![String::new(); SPEAKERS];
        // Whether the beginning of a message is still to be sent again.
        let mut is_owed = vec![false; SPEAKERS];
        let name = |at: usize| format!("s{at}");
        let messages = |said: &[String], is_held: &[bool]| {
            let held = (0..SPEAKERS).filter(|at| is_held[*at] && !said[*at].is_empty());
            let message = |at: usize| {
                let (name, text) = (name(at), &said[at]);
                format!(r#"{{"id":"{at}","role":"assistant","name":"{name}","content":"{text}"}}"#)
            };
            let messages: Vec<_> = held.map(message).collect();
            snapshot(&messages.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let mut out = print(&mut printer, &started("R"));
        for (at, step) in steps.iter().enumerate() {
            let events = match step {
                Step::Speak(speaker) => {
                    let word = format!("w{at} ");
                    said[*speaker] += &word;
                    let is_new = said[*speaker] == word;
                    let name = name(*speaker);
                    let start = format!(
                        r#"{{"type":"TEXT_MESSAGE_START","messageId":"{speaker}","role":"assistant","name":"{name}"}}"#
                    );
                    let is_whole = std::mem::take(&mut is_owed[*speaker]);
                    let delta = if is_whole { &said[*speaker] } else { &word };
                    let start = if is_new || is_whole { start + "\n" } else { String::new() };
                    start + &token(&speaker.to_string(), delta)
                }
                Step::StartOver(is_held) => {
                    for (owed, is_held) in is_owed.iter_mut().zip(is_held) {
                        *owed = !is_held;
                    }
                    started("R") + &messages(&said, is_held)
                }
                Step::Snapshot => {
                    is_owed = vec![false; SPEAKERS];
                    messages(&said, &[true; SPEAKERS])
                }
            };
            out += &print(&mut printer, &events);
        }
        let end = messages(&said, &[true; SPEAKERS]) + &finished("R");
        out += &print(&mut printer, &end);
        prop_assert_eq!(texts(&out), said);
        prop_assert!(!out.contains('~'), "{}", out);
        prop_assert!(out.ends_with("--- run R finished\n"));
    }

    #[test]
    fn whatever_comes_is_printed_without_a_panic(
        events in vec(("[A-Z_]{0,24}|TEXT_MESSAGE_CONTENT|MESSAGES_SNAPSHOT|STATE_DELTA", "[a-c]", "\\PC*|[\u{80}-\u{9f}\u{2020}-\u{2070}\\x00-\\x1f]{0,8}"), 0..20)
    ) {
        let mut printer = Printer::default();
        let mut out = String::new();
        for (kind, id, text) in events {
            let text = Text::new(&text);
            let text = text.escaped();
            let event = format!(
                r#"{{"type":"{kind}","messageId":"{id}","delta":"{text}","messages":[{{"id":"{id}","content":"{text}"}}]}}"#
            );
            printer.print(&Event::read(&event).unwrap(), &mut out);
        }
        prop_assert_eq!(&*harmless(&out), &out);
    }
}
