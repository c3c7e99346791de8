use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

/// What replaces something of a rule, for a tier or a customer: a quota as a text, the limit of a concurrency rule as a number, or a
/// table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(in crate::policy) struct Change {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) quota: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) burst: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) utc_offset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) shadow: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) roll_out: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::policy) cost: Option<u64>,
}

/// What replaces something of a rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Table {
    /// Another quota. Its burst is the one given here, not the rule's.
    quota: Option<String>,
    /// The capacity of a bucket. Alone, it goes with the quota that holds without it: the rule's own, or for a customer its tier's.
    burst: Option<u64>,
    /// Another limit of a `concurrency` rule.
    limit: Option<u64>,
    /// Another offset of the calendar's clock; the rule's unless said otherwise.
    utc_offset: Option<String>,
    /// Whether it only watches.
    shadow: Option<bool>,
    /// The share of keys that it is enforced for, in percent.
    #[cfg_attr(test, schemars(range(min = 0, max = 100)))]
    roll_out: Option<f64>,
    /// What a request costs.
    #[cfg_attr(test, schemars(range(min = 1)))]
    cost: Option<u64>,
}

impl From<Table> for Change {
    fn from(table: Table) -> Change {
        let Table { quota, burst, limit, utc_offset, shadow, roll_out, cost } = table;
        Change { quota, burst, limit, utc_offset, shadow, roll_out, cost }
    }
}

impl<'de> Deserialize<'de> for Change {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Change, D::Error> {
        struct Reads;

        impl<'de> Visitor<'de> for Reads {
            type Value = Change;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quota, as \"100/min\", the limit of a concurrency rule, as 50, or a table of them")
            }

            fn visit_str<E: Error>(self, quota: &str) -> Result<Change, E> {
                Ok(Change { quota: Some(quota.into()), ..Change::default() })
            }

            fn visit_u64<E: Error>(self, limit: u64) -> Result<Change, E> {
                Ok(Change { limit: Some(limit), ..Change::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Change, A::Error> {
                Table::deserialize(MapAccessDeserializer::new(table)).map(Change::from)
            }
        }

        deserializer.deserialize_any(Reads)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for Change {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Change".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let table = generator.subschema_for::<Table>();
        schemars::json_schema!({
            "description": "What replaces something of a rule: a quota, the limit of a `concurrency` rule, or a table.",
            "anyOf": [{ "type": "string" }, { "type": "integer", "minimum": 0 }, table],
        })
    }
}
