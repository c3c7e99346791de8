use serde_json::Value;

use super::*;
use crate::policy::document::Document;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/policy.json");

fn generated() -> String {
    let mut schema = schemars::schema_for!(Document);
    schema.insert("title".into(), "Sluicegate policy".into());
    format!("{}\n", serde_json::to_string_pretty(&schema).expect("JSON"))
}

#[test]
fn the_schema_is_that_of_the_documents() {
    if std::env::var("SCHEMA").is_ok_and(|value| value == "write") {
        std::fs::write(PATH, generated()).expect("written");
    }
    let kept = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(kept == generated(), "it is another; write it anew: SCHEMA=write cargo test --lib policy::tests::schema");
}

/// Whether a value is as a schema says, as far as schemas here say anything.
fn fits(value: &Value, schema: &Value, root: &Value) -> bool {
    let Some(rules) = schema.as_object() else { return schema != &Value::Bool(false) };
    rules.iter().all(|(word, rule)| match word.as_str() {
        "$ref" => {
            let pointer = rule.as_str().and_then(|text| text.strip_prefix('#')).expect("a pointer");
            fits(value, root.pointer(pointer).expect("a definition"), root)
        }
        "type" => {
            let names: Vec<&Value> = rule.as_array().map_or(vec![rule], |names| names.iter().collect());
            names.into_iter().any(|name| match name.as_str().expect("a type") {
                "null" => value.is_null(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_u64() || value.is_i64(),
                "number" => value.is_number(),
                "string" => value.is_string(),
                "array" => value.is_array(),
                "object" => value.is_object(),
                other => panic!("{other}"),
            })
        }
        "enum" => rule.as_array().expect("words").contains(value),
        "const" => rule == value,
        "anyOf" => rule.as_array().expect("schemas").iter().any(|one| fits(value, one, root)),
        "oneOf" => rule.as_array().expect("schemas").iter().filter(|one| fits(value, one, root)).count() == 1,
        "items" => value.as_array().is_none_or(|values| values.iter().all(|value| fits(value, rule, root))),
        "properties" => value.as_object().is_none_or(|entries| {
            entries.iter().all(|(name, value)| rule.get(name).is_none_or(|schema| fits(value, schema, root)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|entries| {
            let known = |name: &str| schema.get("properties").is_some_and(|known| known.get(name).is_some());
            entries.iter().all(|(name, value)| known(name) || fits(value, rule, root))
        }),
        "required" => value.as_object().is_none_or(|entries| {
            rule.as_array().expect("names").iter().all(|name| entries.contains_key(name.as_str().expect("a name")))
        }),
        "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().expect("a number")),
        "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().expect("a number")),
        "minItems" => value.as_array().is_none_or(|values| values.len() as u64 >= rule.as_u64().expect("a number")),
        "minLength" => value.as_str().is_none_or(|text| text.len() as u64 >= rule.as_u64().expect("a number")),
        "maxLength" => value.as_str().is_none_or(|text| text.len() as u64 <= rule.as_u64().expect("a number")),
        "$defs" | "$schema" | "title" | "description" | "default" | "format" => true,
        other => panic!("{other} is not known here"),
    })
}

#[test]
fn good_documents_fit_the_schema_and_others_do_not() {
    let schema: Value = serde_json::from_str(Policy::schema()).expect("JSON");
    let good = serde_json::to_value(whole()).expect("JSON");
    assert!(fits(&good, &schema, &schema));
    for (pointer, value) in [
        ("/on_failure", serde_json::json!("open")),
        ("/rules", serde_json::json!([])),
        ("/rules/0/name", Value::Null),
        ("/rules/0/algorithm", serde_json::json!("token-bucket")),
        ("/rules/0/key", serde_json::json!(5)),
        ("/rules/0/burst", serde_json::json!("20")),
        ("/rules/0/roll_out", serde_json::json!(101)),
        ("/rules/0/reserve", serde_json::json!({ "share": 0.2 })),
        ("/rules/4/ban/responses", serde_json::json!([true])),
        ("/tiers/pro/daily", serde_json::json!(["unlimited"])),
        ("/overrides/acme/rules/per-merchant", serde_json::json!({ "quta": "5/s" })),
        ("/lists/allow", serde_json::json!({ "net": [] })),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect(pointer) = value;
        assert!(!fits(&bad, &schema, &schema), "{pointer}");
        assert!(read("x.json", &bad.to_string()).is_err(), "{pointer}");
    }
    let mut bad = good.clone();
    bad["rule"] = Value::Null;
    assert!(!fits(&bad, &schema, &schema));
}

#[test]
fn the_fields_of_the_schema_are_those_that_are_read() {
    let schema: Value = serde_json::from_str(Policy::schema()).expect("JSON");
    let mut known: Vec<&str> = crate::policy::document::FIELDS.to_vec();
    let mut described: Vec<&str> =
        schema["properties"].as_object().expect("fields").keys().map(String::as_str).collect();
    known.sort_unstable();
    described.sort_unstable();
    assert_eq!(known, described);
}
