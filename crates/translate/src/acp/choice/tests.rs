//! Tests of what a session chooses from, and what it keeps.

use super::*;
use crate::acp::permission::{Always, CallScope, MAX_REMEMBERED, RememberedAnswer};
use crate::langgraph::ConfigChoice;

fn raw(text: &str) -> Json {
    json::raw(text.to_owned())
}

fn menu() -> SessionOptions {
    let mode = |id: &str, assistant: Option<&str>, configurable: Option<&str>| Mode {
        id: id.to_owned(),
        name: id.to_uppercase(),
        description: None,
        assistant: assistant.map(str::to_owned),
        configurable: configurable.map(raw),
        permissions: Rules::default(),
    };
    let assistant = |id: &str| Assistant {
        id: id.to_owned(),
        name: id.to_owned(),
        description: None,
        graph: id.to_owned(),
    };
    let choice = |value, label: &str| ConfigChoice {
        value: raw(value),
        label: label.to_owned(),
        description: None,
    };
    let field = |key: &str, kind, default| ConfigField {
        key: key.to_owned(),
        title: key.to_owned(),
        description: None,
        kind,
        default: raw(default),
    };
    let models = vec![choice("\"fast\"", "Fast"), choice("2", "Two")];
    SessionOptions {
        modes: vec![
            mode("act", None, None),
            mode("plan", Some("planner"), Some(r#"{"model":"slow","deep":true}"#)),
        ],
        assistants: vec![assistant("agent"), assistant("planner")],
        fields: vec![
            field("model", ConfigKind::Choice(models), "\"fast\""),
            field("verbose", ConfigKind::Switch, "false"),
        ],
    }
}

fn chosen() -> Choices {
    Choices {
        mode: Some("act".to_owned()),
        assistant: "agent".to_owned(),
        own: Some("agent".to_owned()),
        fields: IndexMap::new(),
    }
}

#[test]
fn options_come_in_the_order_of_their_weight_each_with_what_is_chosen() {
    let written = |has_switches| {
        let options = menu().options(&chosen(), has_switches);
        let options: Vec<serde_json::Value> = serde_json::from_str(options.get()).unwrap();
        let member = |option: &serde_json::Value, name: &str| {
            option.get(name).map_or_else(String::new, ToString::to_string)
        };
        let lines = options.iter().map(|option| {
            ["id", "category", "type", "currentValue"].map(|name| member(option, name)).join(" ")
        });
        lines.collect::<Vec<_>>()
    };
    let model = r#""config:model" "model" "select" "fast""#;
    let first = [r#""mode" "mode" "select" "act""#, r#""assistant" "_assistant" "select" "agent""#];
    let [mode, assistant] = first;
    assert_eq!(written(true), [mode, assistant, model, r#""config:verbose"  "boolean" false"#]);
    assert_eq!(written(false), [mode, assistant, model, r#""config:verbose"  "select" "false""#]);
    let alone = SessionOptions { assistants: Vec::new(), modes: Vec::new(), ..menu() };
    assert_eq!(alone.modes(&chosen()), None);
    let state = menu().modes(&chosen()).unwrap();
    assert_eq!(
        state.get(),
        r#"{"currentModeId":"act","availableModes":[{"id":"act","name":"ACT"},{"id":"plan","name":"PLAN"}]}"#
    );
}

#[test]
fn what_is_offered_can_be_chosen_and_nothing_else() {
    let (menu, mut choices) = (menu(), chosen());
    for (id, value) in [
        ("mode", OptionValue::Id("none")),
        ("mode", OptionValue::Switch(true)),
        ("assistant", OptionValue::Id("none")),
        ("config:model", OptionValue::Id("slow")),
        ("config:model", OptionValue::Switch(true)),
        ("config:verbose", OptionValue::Id("maybe")),
        ("config:none", OptionValue::Id("x")),
        ("none", OptionValue::Id("x")),
    ] {
        let error = menu.choose(&mut choices, id, &value).unwrap_err();
        assert_eq!(error.code, Code::InvalidParams, "{id} {value:?}");
    }
    assert_eq!(choices, chosen());
    for (id, value) in [
        ("config:model", OptionValue::Id("2")),
        ("config:verbose", OptionValue::Id("true")),
        ("config:verbose", OptionValue::Switch(false)),
    ] {
        menu.choose(&mut choices, id, &value).unwrap();
    }
    let configurable = |choices: &Choices| {
        let configurable = choices.configurable(&menu, Some(("mcp", &raw("[]"))));
        configurable.unwrap().get().to_owned()
    };
    assert_eq!(configurable(&choices), r#"{"model":2,"verbose":false,"mcp":[]}"#);
    // A mode brings its agent along, which has settings of its own.
    menu.choose(&mut choices, "mode", &OptionValue::Id("plan")).unwrap();
    assert_eq!(choices.assistant, "planner");
    assert_eq!(configurable(&choices), r#"{"model":"slow","deep":true,"mcp":[]}"#);
    // What is chosen beats what the mode sets.
    menu.choose(&mut choices, "config:model", &OptionValue::Id("fast")).unwrap();
    assert_eq!(configurable(&choices), r#"{"model":"fast","deep":true,"mcp":[]}"#);
    menu.choose(&mut choices, "mode", &OptionValue::Id("act")).unwrap();
    assert_eq!(configurable(&choices), r#"{"model":2,"verbose":false,"mcp":[]}"#);
    assert_eq!(chosen().configurable(&menu, None), None);
}

#[test]
fn what_an_agents_graph_does_not_offer_is_neither_sent_nor_shown() {
    let mut choices = chosen();
    menu().choose(&mut choices, "config:model", &OptionValue::Id("2")).unwrap();
    let other = ConfigChoice { value: raw("\"gpt\""), label: "G".to_owned(), description: None };
    let mut changed = menu();
    changed.fields.truncate(1);
    changed.fields[0].kind = ConfigKind::Choice(vec![other]);
    changed.fields[0].default = raw("\"gpt\"");
    assert_eq!(choices.configurable(&changed, None), None);
    let options = changed.options(&choices, false);
    assert!(options.get().contains(r#""currentValue":"gpt""#), "{}", options.get());
    // Once it is offered again, it is the choice again.
    assert_eq!(choices.configurable(&menu(), None).unwrap().get(), r#"{"model":2}"#);
}

#[test]
fn a_mode_that_is_left_gives_back_the_sessions_own_agent() {
    let (menu, mut choices) = (menu(), chosen());
    menu.choose_mode(&mut choices, "plan").unwrap();
    assert_eq!(choices.assistant, "planner");
    menu.choose_mode(&mut choices, "act").unwrap();
    assert_eq!(choices, chosen());
    // An agent that is chosen in a mode is the session's own from then on.
    menu.choose_mode(&mut choices, "plan").unwrap();
    menu.choose(&mut choices, "assistant", &OptionValue::Id("agent")).unwrap();
    menu.choose_mode(&mut choices, "plan").unwrap();
    assert_eq!(choices.assistant, "agent");
    menu.choose_mode(&mut choices, "act").unwrap();
    assert_eq!(choices.assistant, "agent");
    // The operator takes the mode away.
    menu.choose_mode(&mut choices, "plan").unwrap();
    for modes in [menu.modes[..1].to_vec(), Vec::new()] {
        let mut choices = choices.clone();
        let less = SessionOptions { modes, ..menu.clone() };
        less.settle_mode(&mut choices);
        assert_eq!(choices.assistant, "agent");
        assert_eq!(choices.mode, less.modes.first().map(|mode| mode.id.clone()));
    }
}

/// A graph with a field `mode`, and no modes in the configuration.
fn with_own_modes() -> SessionOptions {
    let choice = |value: &str, label: &str, description: Option<&str>| ConfigChoice {
        value: raw(value),
        label: label.to_owned(),
        description: description.map(str::to_owned),
    };
    let choices =
        vec![choice("\"act\"", "act", None), choice("\"plan\"", "Plan", Some("Only plans"))];
    let mode = ConfigField {
        key: "mode".to_owned(),
        title: "Mode".to_owned(),
        description: None,
        kind: ConfigKind::Choice(choices),
        default: raw("\"act\""),
    };
    let mut menu = SessionOptions { modes: Vec::new(), ..menu() };
    menu.fields.push(mode);
    menu
}

#[test]
fn a_graphs_field_of_that_name_is_its_mode() {
    let (menu, mut choices) = (with_own_modes(), Choices { mode: None, ..chosen() });
    assert_eq!(
        menu.modes(&choices).unwrap().get(),
        r#"{"currentModeId":"act","availableModes":[{"id":"act","name":"act"},{"id":"plan","name":"Plan","description":"Only plans"}]}"#
    );
    let options = menu.options(&choices, true);
    let options: Vec<serde_json::Value> = serde_json::from_str(options.get()).unwrap();
    let ids: Vec<_> = options.iter().map(|option| option["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["config:mode", "assistant", "config:model", "config:verbose"]);
    assert_eq!(options[0]["category"], "mode");
    // Both ways set the same.
    menu.choose_mode(&mut choices, "plan").unwrap();
    assert_eq!(menu.mode_id(&choices).as_deref(), Some("plan"));
    assert_eq!(choices.configurable(&menu, None).unwrap().get(), r#"{"mode":"plan"}"#);
    menu.choose(&mut choices, "config:mode", &OptionValue::Id("act")).unwrap();
    assert_eq!(menu.mode_id(&choices).as_deref(), Some("act"));
    let error = menu.choose_mode(&mut choices, "fly").unwrap_err();
    assert_eq!(error.message, "there is no mode `fly`; there are `act`, `plan`");
    // Modes of the configuration come before those of the graph.
    let both = SessionOptions { modes: self::menu().modes, ..with_own_modes() };
    assert_eq!(both.mode_id(&chosen()).as_deref(), Some("act"));
    let options = both.options(&chosen(), true);
    assert_eq!(options.get().matches(r#""category":"mode""#).count(), 1, "{}", options.get());
    both.choose_mode(&mut choices, "plan").unwrap();
    assert_eq!(choices.assistant, "planner");
    // A switch is no list of modes.
    let mut switch = with_own_modes();
    switch.fields.last_mut().unwrap().kind = ConfigKind::Switch;
    assert_eq!((switch.modes(&chosen()), switch.mode_id(&chosen())), (None, None));
}

#[test]
fn so_many_agents_are_offered_those_of_the_same_graph_first() {
    let assistant = |graph: &str, at: usize| Assistant {
        id: format!("{graph}{at}"),
        name: format!("{graph}{at}"),
        description: None,
        graph: graph.to_owned(),
    };
    let of = |graph: &'static str, count: usize| (0..count).map(move |at| assistant(graph, at));
    let assistants: Vec<_> =
        of("a", MAX_OFFERED_AGENTS).chain(of("b", 7)).chain(of("c", 3)).collect();
    let menu = SessionOptions { assistants, ..SessionOptions::default() };
    for (running, first, last) in
        [("b5", "a0", "b6"), ("c2", "a0", "c2"), ("a99", "a0", "a99"), ("gone", "a0", "a99")]
    {
        let mut choices = Choices { assistant: running.to_owned(), ..Choices::default() };
        let options = menu.options(&choices, false);
        let options: Vec<serde_json::Value> = serde_json::from_str(options.get()).unwrap();
        let offered = options[0]["options"].as_array().unwrap();
        assert_eq!(offered.len(), MAX_OFFERED_AGENTS);
        assert_eq!(offered[0]["value"], first, "{running}");
        assert_eq!(offered.last().unwrap()["value"], last, "{running}");
        // The others can be chosen all the same.
        menu.choose(&mut choices, "assistant", &OptionValue::Id("c1")).unwrap();
    }
}

#[test]
fn settings_are_kept_for_so_many_agents() {
    let (menu, mut choices) = (menu(), chosen());
    for at in 0..=MAX_CONFIGURED {
        choices.assistant = format!("agent{at}");
        menu.choose(&mut choices, "config:model", &OptionValue::Id("2")).unwrap();
    }
    assert_eq!(choices.fields.len(), MAX_CONFIGURED);
    assert!(!choices.fields.contains_key("agent0"));
}

#[test]
fn what_is_kept_is_read_again_whatever_else_stands_there() {
    let mut choices = chosen();
    choices.set("model", raw("2"));
    choices.fields.insert("other".to_owned(), Fields::from([("a".to_owned(), raw("1"))]));
    choices.fields.swap_indices(0, 1);
    let answer = |args: &str| RememberedAnswer {
        name: "rm".to_owned(),
        args: args.to_owned(),
        calls: CallScope::Same,
        decision: Always::Reject,
    };
    let mut always = PermanentAnswers::default();
    always.add(answer("{}"));
    always.add(answer(r#"{"b":1}"#));
    let kept = SessionRecord {
        is_session: true,
        cwd: Some("/w".to_owned()),
        additional_directories: vec!["/lib".to_owned(), r"C:\a b".to_owned()],
        choices,
        always,
        title: Some("T".to_owned()),
    };
    assert_eq!(SessionRecord::read(&kept.members().write()), kept);
    let foreign = raw(r#"{"cwd":1,"acp_mode":[],"acp_config/x":"y","acp_always/a":{},"title":null,
            "acp_additional_directories":{"a":"/b"},"acp_config":{"model":2}}"#);
    assert_eq!(SessionRecord::read(&foreign), SessionRecord::default());
    let some = raw(r#"{"acp_additional_directories":["/a",7,null,"/b"]}"#);
    assert_eq!(SessionRecord::read(&some).additional_directories, ["/a", "/b"]);
    let some = raw(r#"{"acp_always/a":1,"acp_always/b":{"name":"x"},
            "acp_always/c":{"name":"rm","args":"{}","decision":"reject"}}"#);
    assert_eq!(SessionRecord::read(&some).always.all(), [answer("{}")]);
    assert_eq!(SessionRecord::mark(Some("/w")).get(), r#"{"acp_session":true,"cwd":"/w"}"#);
    assert!(SessionRecord::is_marked(&kept.members().write()));
    assert!(!SessionRecord::is_marked(&raw(r#"{"acp_session":"true","cwd":"/w"}"#)));
}

#[test]
fn a_setting_of_any_name_and_value_is_read_again() {
    let mut kept = SessionRecord::default();
    for agent in ["agent", "up:agent", "a/b~1", ""] {
        let fields = [("model", "2"), ("a/b", "\"x\""), ("~", "null"), ("", "true")];
        let fields = fields.map(|(key, value)| (key.to_owned(), raw(value)));
        kept.choices.fields.insert(agent.to_owned(), Fields::from_iter(fields));
    }
    assert_eq!(SessionRecord::read(&kept.members().write()), kept);
}

/// Two clients change copies of one record. Each sends its own changes only.
#[test]
fn changes_of_two_clients_are_both_kept() {
    let (menu, mut thread) =
        (menu(), SessionRecord { choices: chosen(), ..SessionRecord::default() }.members());
    let opened = SessionRecord::of(&thread);
    let (mut one, mut two) = (opened.clone(), opened.clone());
    menu.choose(&mut one.choices, "config:model", &OptionValue::Id("2")).unwrap();
    one.title = Some("One".to_owned());
    menu.choose(&mut two.choices, "config:verbose", &OptionValue::Switch(true)).unwrap();
    menu.choose_mode(&mut two.choices, "plan").unwrap();
    let before = opened.members();
    for client in [&one, &two] {
        thread.apply(client.members().since(&before));
    }
    let both = SessionRecord::of(&thread);
    assert_eq!((both.title.as_deref(), both.choices.mode.as_deref()), (Some("One"), Some("plan")));
    assert_eq!(both.choices.assistant, "planner");
    let fields = &both.choices.fields["agent"];
    assert_eq!((fields["model"].get(), fields["verbose"].get()), ("2", "true"));
    // A member that is gone is a null, and other forms of the same JSON are no change.
    let gone = SessionRecord { title: None, ..both.clone() }.members().since(&thread);
    assert_eq!(gone.write().get(), r#"{"title":null}"#);
    let spaced = RecordMembers::read(&raw(r#"{"acp_additional_directories": [ ]}"#));
    let dense = RecordMembers::read(&raw(r#"{"acp_additional_directories":[]}"#));
    assert!(spaced.since(&dense).is_empty());
}

#[test]
fn permanent_answers_keep_their_keys_and_take_those_of_the_oldest() {
    let answer = |at: usize, decision| RememberedAnswer {
        name: "rm".to_owned(),
        args: format!(r#"{{"at":{at}}}"#),
        calls: CallScope::Same,
        decision,
    };
    let mut always = PermanentAnswers::default();
    for at in 0..MAX_REMEMBERED {
        always.add(answer(at, Always::Allow));
    }
    let keys = |always: &PermanentAnswers| {
        let members =
            SessionRecord { always: always.clone(), ..SessionRecord::default() }.members();
        let members: std::collections::BTreeMap<String, serde_json::Value> =
            serde_json::from_str(members.write().get()).unwrap();
        members.into_keys().filter(|key| key.starts_with("acp_always/")).collect::<Vec<_>>()
    };
    let before = keys(&always);
    assert_eq!(before.len(), MAX_REMEMBERED);
    always.add(answer(7, Always::Reject));
    always.add(answer(MAX_REMEMBERED, Always::Allow));
    // The oldest answer comes again, under another key than before.
    always.add(answer(0, Always::Reject));
    assert_eq!(keys(&always), before);
    let all = always.all();
    assert_eq!(all.len(), MAX_REMEMBERED);
    assert!(all.contains(&answer(7, Always::Reject)) && !all.contains(&answer(1, Always::Allow)));
    assert_eq!(all.last(), Some(&answer(0, Always::Reject)));
}
