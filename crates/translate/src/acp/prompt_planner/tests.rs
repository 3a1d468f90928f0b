//! Tests of what goes up with a prompt.

use serde_json::{Value, json};

use super::*;
use crate::json::raw;
use crate::run::LiveRun;

fn prompt() -> PromptMessage {
    let message = json!({"type": "human", "id": "p", "content": "go on"});
    let message = raw(message.to_string());
    PromptMessage { id: "p".to_owned(), message, messages_key: "chat".parse().unwrap() }
}

/// The plan on a thread with these messages while these runs are live.
fn planned(messages: Option<&Value>, live: &[LiveRun]) -> Plan {
    let prompt = prompt();
    let body = messages.map(|messages| json!({"values": {"chat": messages}}).to_string());
    let state =
        body.as_deref().and_then(|body| ThreadState::parse_under(&prompt.messages_key, body));
    let mut run = NewRun::new("r", prompt.input());
    run.hides = vec!["kept".to_owned()];
    let planner = PromptPlanner { prompt, run };
    let evidence = Evidence { state: state.as_ref(), live: Some(live), ..Evidence::default() };
    match planner.plan(&evidence, &InputKeys::Unknown) {
        Ok(PlanStep::Plan(plan)) => *plan,
        Ok(PlanStep::Needs(need)) => panic!("a prompt asks for {need:?}"),
    }
}

/// What goes up as the conversation: the ids of results and of the prompt.
fn goes_up(plan: Plan) -> (Vec<String>, bool) {
    let run = plan.run.unwrap();
    assert_eq!((&*run.name, &*run.hides), ("r", &["kept".to_owned()][..]));
    let Start::Input(input) = run.start else { panic!("{:?}", run.start) };
    let input: Value = serde_json::from_str(input.get()).unwrap();
    assert_eq!(input.as_object().unwrap().len(), 1);
    let ids = input["chat"].as_array().unwrap().iter().map(|message| {
        let error = message["type"] == "tool" && message["status"] == "error";
        assert!(error || message["content"] == "go on", "{message}");
        message["id"].as_str().unwrap().to_owned()
    });
    (ids.collect(), run.is_alone)
}

fn calls(id: &str, calls: &[&str]) -> Value {
    let call = |id: &&str| json!({"id": id, "name": "search", "args": {}});
    let calls: Vec<_> = calls.iter().map(call).collect();
    json!({"type": "ai", "id": id, "content": "", "tool_calls": calls})
}

fn result(call: &str) -> Value {
    json!({"type": "tool", "id": format!("of-{call}"), "content": "", "tool_call_id": call})
}

fn said(id: &str) -> Value {
    json!({"type": "human", "id": id, "content": "hi"})
}

#[test]
fn only_the_calls_that_still_wait_get_a_result_before_the_prompt() {
    let alone = (vec!["p".to_owned()], false);
    for (messages, closed) in [
        (json!([]), &[][..]),
        (json!([said("h")]), &[]),
        (json!([said("h"), calls("a", &[])]), &[]),
        (json!([said("h"), calls("a", &["c"])]), &["a:c:unanswered"]),
        (json!([calls("a", &["c", "d"]), result("c")]), &["a:d:unanswered"]),
        (json!([calls("a", &["c", "d"]), result("d"), result("c")]), &[]),
        // The conversation went on without the result.
        (json!([calls("a", &["c"]), said("h")]), &[]),
        // Models repeat the ids of calls.
        (json!([calls("a", &["c"]), result("c"), calls("b", &["c"])]), &["b:c:unanswered"]),
    ] {
        let ids: Vec<_> = closed.iter().chain(&["p"]).map(|id| (*id).to_owned()).collect();
        let expected = (ids, !closed.is_empty());
        assert_eq!(goes_up(planned(Some(&messages), &[])), expected, "{messages}");
        // A live run gives the results of its calls.
        let live = [LiveRun { id: "live".to_owned(), messages: Vec::new() }];
        assert_eq!(goes_up(planned(Some(&messages), &live)), alone, "{messages}");
    }
    assert_eq!(goes_up(planned(None, &[])), alone);
}

#[test]
fn a_thread_without_open_calls_gets_the_prompt_alone() {
    let plan = planned(Some(&json!([said("h")])), &[]);
    let (Start::Input(planned), Start::Input(alone)) = (plan.run.unwrap().start, prompt().input())
    else {
        panic!("a prompt is an input")
    };
    assert_eq!(planned, alone);
}
