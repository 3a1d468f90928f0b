//! Which fields of a configuration can be chosen.

use super::*;

/// A field in short: `key|title|description|kind|default`.
fn fields(schemas: &str, assistant: &str) -> Vec<String> {
    let fields = ConfigField::list(schemas, assistant).into_iter();
    let one = |ConfigField { key, title, description, kind, default }: ConfigField| {
        let kind = match kind {
            ConfigKind::Switch => "switch".to_owned(),
            ConfigKind::Choice(choices) => {
                let one = |c: ConfigChoice| format!("{}={}", c.label, c.value.get());
                choices.into_iter().map(one).collect::<Vec<_>>().join(" ")
            }
        };
        let description = description.unwrap_or_default();
        format!("{key}|{title}|{description}|{kind}|{}", default.get())
    };
    fields.map(one).collect()
}

fn config_schema(properties: &str) -> String {
    format!(
        r##"{{"config_schema":{{"$defs":{{
                "Colour":{{"description":"Which colour.","enum":["red","blue"],"title":"Colour"}},
                "a/b":{{"enum":[1,2]}},"Loop":{{"anyOf":[{{"$ref":"#/$defs/Loop"}}]}}}},
                "properties":{{{properties}}}}},"context_schema":null}}"##
    )
}

/// Schemas as langgraph-api 0.16.7 derives them from a pydantic model, a dataclass or a dict.
#[test]
fn the_fields_of_the_python_server_that_have_few_values_are_found() {
    for (property, expected) in [
        (
            r#""model":{"default":"fast","enum":["fast","deep"],"title":"Model","type":"string"}"#,
            r#"model|Model||fast="fast" deep="deep"|"fast""#,
        ),
        (
            r##""colour":{"$ref":"#/$defs/Colour","default":"blue"}"##,
            r#"colour|colour|Which colour.|red="red" blue="blue"|"blue""#,
        ),
        (
            r##""of":{"$ref":"#/$defs/Colour","description":"own words","title":"Own"}"##,
            r#"of|Own|own words|red="red" blue="blue"|"red""#,
        ),
        (
            r##""old":{"allOf":[{"$ref":"#/$defs/Colour"}],"default":"blue"}"##,
            r#"old|old|Which colour.|red="red" blue="blue"|"blue""#,
        ),
        (
            r#""opt":{"anyOf":[{"enum":["a","b"],"type":"string"},{"type":"null"}],"default":null,"title":"Opt"}"#,
            r#"opt|Opt||a="a" b="b" none=null|null"#,
        ),
        (
            r#""level":{"default":2,"enum":[1,2,3],"title":"Level","type":"integer"}"#,
            "level|Level||1=1 2=2 3=3|2",
        ),
        (
            r#""mixed":{"default":"auto","enum":["auto",1,true,null,""],"title":"Mixed"}"#,
            r#"mixed|Mixed||auto="auto" 1=1 true=true none=null ""=""|"auto""#,
        ),
        (r##""ref":{"$ref":"#/$defs/a~1b"}"##, "ref|ref||1=1 2=2|1"),
        (r#""flag":{"default":true,"title":"Flag","type":"boolean"}"#, "flag|Flag||switch|true"),
        (r#""unset":{"type":"boolean"}"#, "unset|unset||switch|false"),
        (
            r#""maybe":{"anyOf":[{"type":"boolean"},{"type":"null"}],"default":null}"#,
            "maybe|maybe||false=false true=true none=null|null",
        ),
    ] {
        assert_eq!(fields(&config_schema(property), "{}"), [expected], "{property}");
    }
}

/// Schemas as langgraph-api 1.5.1 derives them from a zod object.
#[test]
fn the_fields_of_the_javascript_server_that_have_few_values_are_found() {
    for (property, expected) in [
        (
            r#""model":{"default":"fast","description":"which","type":"string","enum":["fast","deep"]}"#,
            r#"model|model|which|fast="fast" deep="deep"|"fast""#,
        ),
        (
            r#""lits":{"default":"y","anyOf":[{"type":"string","const":"x","title":"Ex"},{"type":"string","const":"y"}]}"#,
            r#"lits|lits||Ex="x" y="y"|"y""#,
        ),
        (r#""nat":{"default":2.0,"type":"number","enum":[1,2.0]}"#, "nat|nat||1=1 2.0=2.0|2.0"),
    ] {
        assert_eq!(fields(&config_schema(property), "{}"), [expected], "{property}");
    }
}

#[test]
fn what_cannot_be_chosen_from_a_list_is_left_out() {
    for property in [
        r#""text":{"type":"string","default":"t"}"#,
        r#""single":{"const":"only","default":"only"}"#,
        r#""many":{"type":"array","items":{"enum":["a","b"]}}"#,
        r#""free":{"anyOf":[{"enum":["a","b"]},{"type":"string"}]}"#,
        r#""twice":{"enum":["a","a"]}"#,
        r#""nested":{"enum":[{"a":1},{"a":2}]}"#,
        r##""loop":{"$ref":"#/$defs/Loop"}"##,
        r##""lost":{"$ref":"#/$defs/Nobody"}"##,
        r#""far":{"$ref":"https://h/schema#/x"}"#,
        r#""odd":{"enum":7}"#,
        r#""odder":true"#,
        r#""thread_id":{"enum":["a","b"]}"#,
        r#""checkpoint_ns":{"enum":["a","b"]}"#,
        r#""__pregel_store":{"type":"boolean"}"#,
    ] {
        assert_eq!(fields(&config_schema(property), "{}"), [""; 0], "{property}");
    }
    let long: Vec<_> = (0..=MAX_CHOICES).map(|n| n.to_string()).collect();
    let long = format!(r#""long":{{"enum":[{}]}}"#, long.join(","));
    assert_eq!(fields(&config_schema(&long), "{}"), [""; 0]);
    for nothing in ["<html>", "[]", "{}", r#"{"config_schema":{},"context_schema":null}"#] {
        assert_eq!(fields(nothing, "<html>"), [""; 0], "{nothing}");
    }
}

#[test]
fn what_the_assistant_has_set_goes_before_the_schemas_default() {
    let schemas = config_schema(
        r#""model":{"default":"fast","enum":["fast","deep"]},"flag":{"type":"boolean"}"#,
    );
    for (assistant, expected) in [
        (r#"{"config":{},"context":{}}"#, ["\"fast\"", "false"]),
        (r#"{"config":{"configurable":{"model":"deep"}},"context":{}}"#, ["\"deep\"", "false"]),
        (r#"{"config":{},"context":{"model":"deep","flag":true}}"#, ["\"deep\"", "true"]),
        // A value outside the list could not be chosen again.
        (r#"{"config":{"configurable":{"model":"other","flag":null}}}"#, ["\"fast\"", "false"]),
    ] {
        let fields = ConfigField::list(&schemas, assistant);
        let defaults: Vec<_> = fields.iter().map(|field| field.default.get()).collect();
        assert_eq!(defaults, expected, "{assistant}");
    }
}

#[test]
fn a_field_that_both_schemas_name_is_listed_once() {
    let schemas = r#"{"config_schema":{"properties":{"a":{"type":"boolean"}}},
            "context_schema":{"properties":{"a":{"enum":[1,2]},"b":{"type":"boolean"}}}}"#;
    assert_eq!(fields(schemas, "{}"), ["a|a||switch|false", "b|b||switch|false"]);
}

#[test]
fn a_list_in_a_fields_annotation_can_be_chosen_from() {
    let ui = r#""type":"select","default":"b","options":[{"label":"A","value":"a"},{"value":"b"}]"#;
    let expected = ["m|m||A=\"a\" b=\"b\"|\"b\""];
    for property in [
        format!(r#""m":{{"type":"string","x_oap_ui_config":{{{ui}}}}}"#),
        format!(r#""m":{{"default":null,"metadata":{{"x_oap_ui_config":{{{ui}}}}}}}"#),
    ] {
        assert_eq!(fields(&config_schema(&property), "{}"), expected, "{property}");
    }
    // The schema's own list is the one that the graph checks.
    let both = format!(r#""m":{{"enum":["b","c"],"x_oap_ui_config":{{{ui}}}}}"#);
    assert_eq!(fields(&config_schema(&both), "{}"), ["m|m||b=\"b\" c=\"c\"|\"b\""]);
    for none in [
        r#""m":{"x_oap_ui_config":{"type":"text","default":"b"}}"#,
        r#""m":{"x_oap_ui_config":{"type":"select"}}"#,
        r#""m":{"x_oap_ui_config":{"type":"select","options":[{"label":"A"}]}}"#,
        r#""m":{"x_oap_ui_config":{"type":"select","options":7}}"#,
        r#""m":{"x_oap_ui_config":7,"metadata":[]}"#,
    ] {
        assert_eq!(fields(&config_schema(none), "{}"), [""; 0], "{none}");
    }
}
