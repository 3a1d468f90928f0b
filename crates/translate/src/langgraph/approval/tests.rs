//! Approvals in each wire form, and their answers.

use super::*;

fn read(value: &str, schema: Option<&str>) -> Option<Approval> {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    let (value, schema) = (raw(value), schema.map(raw));
    Approval::parse(&RawInterrupt {
        id: "i".into(),
        value: Some(&value),
        response_schema: schema.as_deref(),
    })
}

#[test]
fn an_approval_of_one_call_has_its_decisions_in_its_schema() {
    let value = r#"{"type":"tool_approval","tool_call_id":"call_1","name":"send","args":{"to":"x"},"description":""}"#;
    let union = r##"{"oneOf":[],"discriminator":{"mapping":{"approve":"#/$defs/A","reject":"#/$defs/R"},"propertyName":"type"}}"##;
    let one = r#"{"properties":{"type":{"const":"approve","type":"string"}},"type":"object"}"#;
    for (schema, expected) in [
        (Some(union), &["approve", "reject"][..]),
        (Some(one), &["approve"]),
        (Some("null"), &[]),
        (None, &[]),
    ] {
        let approval = read(value, schema).unwrap();
        assert_eq!(approval.form, ApprovalForm::PerCall);
        let [request] = &*approval.requests else { panic!("{approval:?}") };
        assert_eq!(request.decisions, expected, "{schema:?}");
        assert_eq!(request.call_id.as_deref(), Some("call_1"));
        assert_eq!(request.description, None);
    }
    assert_eq!(read(r#"{"type":"tool_approval","name":"send"}"#, None), None);
    assert_eq!(read(r#"{"type":"question","tool_call_id":"c","name":"x"}"#, None), None);
}

#[test]
fn an_agent_inbox_request_is_an_approval_of_what_its_config_allows() {
    let request = |config: &str| {
        format!(
            r#"{{"action_request":{{"action":"send","args":{{"to":"x"}}}},"config":{config},"description":"Sure?","due":"now"}}"#
        )
    };
    let one = request(r#"{"allow_accept":true,"allow_ignore":true,"allow_edit":false}"#);
    let other = request(r#"{"allow_respond":true,"allow_edit":true,"allow_accept":1}"#);
    for value in [one.clone(), format!("[{one}]"), format!("[{one},{other}]")] {
        let approval = read(&value, None).unwrap();
        assert_eq!(approval.form, ApprovalForm::Inbox);
        let [first, rest @ ..] = &*approval.requests else { panic!("{approval:?}") };
        assert_eq!(first.decisions, ["accept", "ignore"]);
        assert_eq!(first.description, Some(Text::new("Sure?")));
        assert_eq!(first.args.get(), r#"{"to":"x"}"#);
        assert_eq!(first.details.as_ref().unwrap().get(), r#"{"due":"now"}"#);
        assert!(rest.iter().all(|other| other.decisions == ["edit", "response"]));
    }
    for none in [request("{}"), request("1"), format!("[{one},1]"), "[]".to_owned()] {
        assert_eq!(read(&none, None), None, "{none}");
    }
}

#[test]
fn what_no_field_holds_is_kept_beside_it() {
    let value = r#"{"action_requests":[{"name":"a","args":{},"description":{"en":"A"},"risk":1},{"name":"b"}],
            "review_configs":[],"reason":"r","none":null}"#;
    let approval = read(value, None).unwrap();
    let details = |at: usize| approval.requests[at].details.as_ref().unwrap().get().to_owned();
    assert_eq!(details(0), r#"{"reason":"r","description":{"en":"A"},"risk":1}"#);
    assert_eq!(details(1), r#"{"reason":"r"}"#);
    let value = r#"{"type":"tool_approval","tool_call_id":"c","name":"a","policy":"p"}"#;
    let approval = read(value, None).unwrap();
    assert_eq!(approval.requests[0].details.as_ref().unwrap().get(), r#"{"policy":"p"}"#);
}

#[test]
fn each_form_has_its_own_answer() {
    let tool = Text::new("send");
    let edit = Decision::Edit { args: json::raw(r#"{"to":"y"}"#.to_owned()) };
    let reject = Decision::Reject { message: Some(Text::new("no")) };
    for (form, decision, expected) in [
        (ApprovalForm::Python, &Decision::Approve, r#"{"decisions":[{"type":"approve"}]}"#),
        (
            ApprovalForm::JavaScript,
            &edit,
            r#"{"decisions":[{"type":"edit","editedAction":{"name":"send","args":{"to":"y"}}}]}"#,
        ),
        (
            ApprovalForm::PerCall,
            &edit,
            r#"{"type":"edit","edited_action":{"name":"send","args":{"to":"y"}}}"#,
        ),
        (ApprovalForm::PerCall, &reject, r#"{"type":"reject","message":"no"}"#),
        (
            ApprovalForm::PerCall,
            &Decision::Respond { message: Text::new("42") },
            r#"{"type":"respond","message":"42"}"#,
        ),
        (ApprovalForm::Inbox, &Decision::Approve, r#"[{"type":"accept","args":null}]"#),
        (
            ApprovalForm::Inbox,
            &edit,
            r#"[{"type":"edit","args":{"action":"send","args":{"to":"y"}}}]"#,
        ),
        (ApprovalForm::Inbox, &reject, r#"[{"type":"ignore","args":"no"}]"#),
        (
            ApprovalForm::Inbox,
            &Decision::Respond { message: Text::new("42") },
            r#"[{"type":"response","args":"42"}]"#,
        ),
    ] {
        let spelled = form.decision(&tool, decision);
        assert_eq!(form.read(&spelled).as_ref(), Some(decision));
        let answer = form.answer(&[spelled]);
        assert_eq!(answer.get(), expected);
    }
}
