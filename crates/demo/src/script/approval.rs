//! `approval` asks before its tools run, like LangChain's `HumanInTheLoopMiddleware`.

use serde_json::{Value, json};

use super::speech::Speech;
use super::{Act, Due, End, Line, LineContent, NodeContext, arg, object, open_calls};
use crate::state::{Exception, Values, merged, messages, text};

pub(super) const MODEL: &str = "model";
const REVIEW: &str = "HumanInTheLoopMiddleware.after_model";
const TOOLS: &str = "tools";

/// How many beats a tool takes.
const TOOL_BEATS: u32 = 10;

/// The effect of one decision.
enum Decided {
    /// The call is executed, as proposed or as edited.
    Run(Value),
    /// The call is answered without being executed.
    Answered(Value),
}

pub(super) fn follow(node: &str, values: &Values) -> Option<Vec<Due>> {
    match node {
        "__start__" | TOOLS => Some(vec![Due::pull(MODEL)]),
        MODEL => Some(vec![Due::pull(REVIEW)]),
        REVIEW => Some(match open_calls(values) {
            None => vec![],
            Some(calls) if calls.is_empty() => vec![Due::pull(MODEL)],
            Some(calls) => Due::tools(calls),
        }),
        _ => None,
    }
}

pub(super) fn act(due: &Due, node: &NodeContext<'_>) -> Act {
    match due.node {
        TOOLS => execute(due.call(), node),
        REVIEW => review(node),
        _ if messages(node.values).last().is_some_and(|last| last["type"] == "tool") => {
            conclude(node)
        }
        _ => propose(node),
    }
}

fn propose(node: &NodeContext<'_>) -> Act {
    let calls = [
        ("send_email", json!({"to": "ada@example.com", "body": node.words()})),
        ("delete_file", json!({"path": "/tmp/draft.txt"})),
    ];
    Speech::new(node, 1)
        .think("Both of these have effects, so somebody has to agree first.")
        .say("I would send this by email and delete the draft.")
        .call(node, &calls)
        .end()
}

fn review(node: &NodeContext<'_>) -> Act {
    let Some(calls) = open_calls(node.values).filter(|calls| !calls.is_empty()) else {
        return Act::silent(None);
    };
    let end = match node.resume {
        None => End::Ask(question(&calls)),
        Some(answer) => match decide(&calls, answer, node) {
            Ok(decided) => resolve(decided, node),
            Err(exception) => End::Raise(exception),
        },
    };
    let lines = match &end {
        End::Send(update, _) => rejections(update),
        End::Update(_) | End::Ask(_) | End::Raise(_) => vec![],
    };
    Act { lines, pause: 0, end }
}

fn question(calls: &[Value]) -> Value {
    let request = |call: &Value| {
        let description = format!(
            "Tool execution requires approval\n\nTool: {}\nArgs: {}",
            call["name"].as_str().unwrap_or_default(),
            call["args"]
        );
        json!({"name": call["name"], "args": call["args"], "description": description})
    };
    let config = |call: &Value| {
        let allowed = ["approve", "edit", "reject", "respond"];
        json!({"action_name": call["name"], "allowed_decisions": allowed})
    };
    json!({
        "action_requests": calls.iter().map(request).collect::<Vec<_>>(),
        "review_configs": calls.iter().map(config).collect::<Vec<_>>(),
    })
}

/// Reads one decision for each call, in the order of the calls.
fn decide(
    calls: &[Value],
    answer: &Value,
    node: &NodeContext<'_>,
) -> Result<Vec<Decided>, Exception> {
    let Some(decisions) = answer["decisions"].as_array() else {
        return Err(Exception { kind: "KeyError", message: "'decisions'".to_owned() });
    };
    if decisions.len() != calls.len() {
        return Err(Exception::value_error(format!(
            "Number of human decisions ({}) does not match number of hanging tool calls ({}).",
            decisions.len(),
            calls.len()
        )));
    }
    let decide_one = |(call, decision): (&Value, &Value)| {
        let name = call["name"].as_str().unwrap_or_default();
        let message = decision["message"].as_str();
        match decision["type"].as_str().unwrap_or_default() {
            "approve" => Ok(Decided::Run(call.clone())),
            "edit" => {
                let action = &decision["edited_action"];
                let edited =
                    json!({"name": action["name"], "args": action["args"], "edited": true});
                let edited = merged(call.clone(), edited);
                Ok(Decided::Run(edited))
            }
            "reject" => {
                let content = match message {
                    Some(reason) => {
                        format!("User rejected the tool call for `{name}` with reason: {reason}")
                    }
                    None => format!(
                        "User rejected the tool call for `{name}` with id {}. The tool was not \
                         executed.",
                        call["id"].as_str().unwrap_or_default()
                    ),
                };
                Ok(Decided::Answered(node.tool_message(call, &content, "error")))
            }
            "respond" => {
                let content = message.unwrap_or_default();
                Ok(Decided::Answered(node.tool_message(call, content, "success")))
            }
            other => Err(Exception::value_error(format!(
                "Unexpected human decision of type '{other}' for tool '{name}'; allowed are \
                 approve, edit, reject and respond"
            ))),
        }
    };
    calls.iter().zip(decisions).map(decide_one).collect()
}

/// The model's message again, the answers that people gave, and the remaining calls.
fn resolve(decided: Vec<Decided>, node: &NodeContext<'_>) -> End {
    let model = messages(node.values).iter().rfind(|message| message["type"] == "ai");
    let mut messages_after: Vec<_> = model.cloned().into_iter().collect();
    let mut calls = vec![];
    for decided in decided {
        match decided {
            Decided::Run(call) => calls.push(call),
            Decided::Answered(message) => messages_after.push(message),
        }
    }
    End::Send(object(json!({"messages": messages_after})), calls)
}

fn rejections(update: &Values) -> Vec<Line> {
    let answers = messages(update).iter().filter(|message| message["type"] == "tool");
    answers.map(|answer| Line { after: 0, content: LineContent::Message(answer.clone()) }).collect()
}

fn execute(call: &Value, node: &NodeContext<'_>) -> Act {
    let done = match call["name"].as_str().unwrap_or_default() {
        "send_email" => format!("sent to {}", arg(call, "to").unwrap_or("nobody")),
        "delete_file" => format!("deleted {}", arg(call, "path").unwrap_or("nothing")),
        other => format!("there is no tool {other}"),
    };
    let content = if call["edited"] == true {
        format!(
            "Note: a human reviewer replaced this tool call before it ran. Executed instead: {} \
             with arguments {}.\n\nTool response:\n{done}",
            call["name"].as_str().unwrap_or_default(),
            call["args"],
        )
    } else {
        done
    };
    let message = node.tool_message(call, &content, "success");
    let result = Line { after: TOOL_BEATS, content: LineContent::Message(message.clone()) };
    let update = object(json!({"messages": [message]}));
    Act { lines: vec![result], pause: 0, end: End::Update(Some(update)) }
}

fn conclude(node: &NodeContext<'_>) -> Act {
    let tools = messages(node.values).iter().rev().take_while(|message| message["type"] == "tool");
    let (done, refused): (Vec<_>, Vec<_>) = tools.partition(|answer| answer["status"] == "success");
    let summary = match (done.len(), refused.len()) {
        (_, 0) => "Both are done.".to_owned(),
        (0, _) => "Then I leave both as they are.".to_owned(),
        _ => format!(
            "Done where you agreed: {}.",
            done.iter().map(|m| text(m)).collect::<Vec<_>>().join(", ")
        ),
    };
    Speech::new(node, 1).say(&format!("{summary} You had said: \"{}\".", node.words())).end()
}
