//! The check of answers against schemas, compared with an independent validator. Every refused
//! answer is wrong, and the cost of one check is bounded for any schema.

use crate::support::generate;
use proptest::prelude::*;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use threadway_translate::json::schema::{MAX_SCHEMA_BYTES, Mismatch, mismatch};

fn check(schema: &Value, value: &Value) -> Option<Mismatch> {
    let raw = |value: &Value| -> Box<RawValue> { to_raw_value(value).unwrap() };
    mismatch(&raw(schema), &raw(value))
}

fn is_valid(schema: &Value, value: &Value) -> bool {
    jsonschema::draft202012::new(schema).is_ok_and(|validator| validator.is_valid(value))
}

#[test]
fn what_is_wrong_is_named_by_its_place_and_keyword() {
    let form = json!({
        "type": "object", "required": ["level"], "additionalProperties": false,
        "properties": {
            "level": {"enum": ["low", "high"]},
            "count": {"type": "integer", "minimum": 1, "exclusiveMaximum": 9},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
            "a/b~c": {"const": 1.0},
            "self": {"$ref": "#"},
            "who": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Who"}]},
        },
        "$defs": {"Who": {"type": "object", "required": ["name"], "minProperties": 1}},
    });
    let with = |more: Value| {
        let mut answer = json!({"level": "low"});
        answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        answer
    };
    for (answer, expected) in [
        (with(json!({})), None),
        (with(json!({"count": 1.0, "tags": ["a", "äöü"], "a/b~c": 1, "who": null})), None),
        (with(json!({"who": {"name": "x"}, "self": {"level": "high"}})), None),
        (json!("low"), Some(("", "type"))),
        (json!({}), Some(("", "required"))),
        (with(json!({"level": "mid"})), Some(("/level", "enum"))),
        (with(json!({"count": 1.5})), Some(("/count", "type"))),
        (with(json!({"count": 0})), Some(("/count", "minimum"))),
        (with(json!({"count": 9})), Some(("/count", "exclusiveMaximum"))),
        (with(json!({"tags": ["a", 2]})), Some(("/tags/1", "type"))),
        (with(json!({"tags": ["abcd"]})), Some(("/tags/0", "maxLength"))),
        (with(json!({"tags": ["a", "b", "c"]})), Some(("/tags", "maxItems"))),
        (with(json!({"a/b~c": 2})), Some(("/a~1b~0c", "const"))),
        (with(json!({"self": {"level": 1}})), Some(("/self/level", "enum"))),
        (with(json!({"who": {}})), Some(("/who", "anyOf"))),
        (with(json!({"more": 1})), Some(("/more", "additionalProperties"))),
    ] {
        let found = check(&form, &answer);
        let found = found.as_ref().map(|found| (&*found.path, found.keyword));
        assert_eq!(found, expected, "{answer}");
        assert_eq!(is_valid(&form, &answer), expected.is_none(), "{answer}");
    }
}

#[test]
fn what_cannot_be_judged_is_let_pass() {
    for (schema, answer) in [
        (json!({"$ref": "http://127.0.0.1:9/never-fetched"}), json!(1)),
        (json!({"$ref": "#/nowhere"}), json!(1)),
        (json!({"pattern": "(a+)+$"}), json!("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!")),
        (json!({"not": {}}), json!(1)),
        (json!({"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string"}]}), json!("b")),
        (json!({"type": "date"}), json!(1)),
        (json!({"patternProperties": {"^x": {}}, "additionalProperties": false}), json!({"xy": 1})),
        (json!({"type": "string", "nullable": true}), json!(null)),
        (
            json!({"properties": {"a": {"$id": "other", "$ref": "#/x"}}, "x": false}),
            json!({"a": 1}),
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#/definitions/a", "type": "string", "definitions": {"a": {}}}),
            json!(1),
        ),
        (json!({"enum": ["x".repeat(MAX_SCHEMA_BYTES)]}), json!(1)),
        (json!(7), json!(1)),
    ] {
        assert_eq!(check(&schema, &answer), None, "{schema} {answer}");
    }
    // Doubles cannot represent the difference between these.
    assert_eq!(
        check(
            &json!({"exclusiveMinimum": 9_007_199_254_740_993_u64}),
            &json!(9_007_199_254_740_994_u64)
        ),
        None
    );
}

#[test]
fn a_hostile_schema_costs_little() {
    // Each level doubles the work of a naive check: 2^60 steps.
    let mut definitions = serde_json::Map::new();
    for level in 0..60 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        definitions.insert(format!("d{level}"), json!({"allOf": [next, next]}));
    }
    definitions.insert("d60".to_owned(), json!({"type": "string"}));
    let doubling = json!({"$ref": "#/$defs/d0", "$defs": definitions});
    assert_eq!(check(&doubling, &json!("x")), None);
    let endless = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]});
    assert_eq!(check(&endless, &json!(1)), None);
    let listed = json!({"items": {"enum": (0..5_000).collect::<Vec<_>>()}});
    assert_eq!(check(&listed, &json!(vec![4_999; 100_000])), None);
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-3..4_i64).prop_map(Value::from),
        prop_oneof![Just(json!(1.0)), Just(json!(0.5)), Just(json!(1e300))],
        "[ab]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..3)
                .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

fn schemas() -> impl Strategy<Value = Value> {
    let types = ["null", "boolean", "integer", "number", "string", "array", "object"];
    let of_type = prop::sample::select(types.to_vec());
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        of_type.clone().prop_map(|name| json!({"type": name})),
        prop::collection::vec(of_type, 1..3).prop_map(|names| {
            let mut names = names;
            names.sort_unstable();
            names.dedup();
            json!({"type": names})
        }),
        values().prop_map(|value| json!({"const": value})),
        (-2..3_i64).prop_map(|limit| json!({"minimum": limit, "exclusiveMaximum": limit + 2})),
        (0..3_u64).prop_map(
            |limit| json!({"minLength": limit, "maxItems": limit, "minProperties": limit})
        ),
        Just(json!({"$ref": "#/$defs/a"})),
        Just(json!({"pattern": "^a", "uniqueItems": true, "multipleOf": 2})),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            list.clone().prop_map(|all| json!({"allOf": all})),
            list.clone().prop_map(|any| json!({"anyOf": any})),
            list.clone().prop_map(|one| json!({"oneOf": one})),
            inner.clone().prop_map(|not| json!({"not": not})),
            (list, inner.clone())
                .prop_map(|(first, rest)| json!({"prefixItems": first, "items": rest})),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, others)| json!({
                "properties": {"a": a, "b": b}, "required": ["a"], "additionalProperties": others,
            })),
        ]
    })
}

proptest! {
    #![proptest_config(generate::config(2_000))]

    #[test]
    fn what_is_refused_is_wrong(schema in schemas(), target in schemas(), value in values()) {
        let mut schema = schema;
        if let Some(members) = schema.as_object_mut() {
            // A reference to itself that consumes nothing has no meaning.
            let text = target.to_string();
            let target = if text.contains("$ref") { json!({"type": "string"}) } else { target };
            members.insert("$defs".to_owned(), json!({"a": target}));
        }
        if check(&schema, &value).is_some() {
            prop_assert!(!is_valid(&schema, &value), "{schema} takes {value}");
        }
    }
}
