//! GraphQL queries: parsed, priced and run over a toy shop. Knows nothing of limits.

use std::collections::HashMap;

use graphql_parser::query::{self, Definition, Field, OperationDefinition, Selection};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The shop is a small one.
const PRODUCTS: u64 = 12;
const VARIANTS: u64 = 3;

type Selected<'a> = query::SelectionSet<'a, &'a str>;

/// As it is POSTed.
#[derive(Deserialize)]
pub(super) struct Posted {
    query: String,
    variables: Option<Map<String, Value>>,
}

/// One query, ready to be priced or run.
pub(super) struct Query<'a> {
    root: Selected<'a>,
    fragments: HashMap<&'a str, Selected<'a>>,
    variables: Option<&'a Map<String, Value>>,
}

impl<'a> Query<'a> {
    pub(super) fn parse(posted: &'a Posted) -> Result<Query<'a>, String> {
        let document = graphql_parser::parse_query::<&str>(&posted.query).map_err(|error| error.to_string())?;
        let (mut root, mut fragments) = (None, HashMap::new());
        for definition in document.definitions {
            match definition {
                Definition::Operation(OperationDefinition::SelectionSet(set)) => root = Some(set),
                Definition::Operation(OperationDefinition::Query(query)) => root = Some(query.selection_set),
                Definition::Operation(_) => return Err("only queries can be run here".into()),
                Definition::Fragment(fragment) => drop(fragments.insert(fragment.name, fragment.selection_set)),
            }
        }
        Ok(Query { root: root.ok_or("there is no query")?, fragments, variables: posted.variables.as_ref() })
    }

    /// How many objects a field asks for.
    fn first(&self, field: &Field<'a, &'a str>) -> u64 {
        let given = field.arguments.iter().find(|(name, _)| *name == "first").map(|(_, value)| value);
        let count = match given {
            Some(query::Value::Int(count)) => count.as_i64().and_then(|count| count.try_into().ok()),
            Some(query::Value::Variable(name)) => self.variables.and_then(|variables| variables.get(*name)?.as_u64()),
            _ => None,
        };
        count.unwrap_or(1)
    }

    /// What it asks for, in points.
    pub(super) fn price(&self) -> u64 {
        self.price_of(&self.root, &mut HashMap::new())
    }

    /// Each fragment is priced once, however often it is spread; one that contains itself, or
    /// that nobody knows, can never be paid. A spread costs a point too, or a few lines could make the resolver run for ever.
    fn price_of(&self, set: &Selected<'a>, priced: &mut HashMap<&'a str, u64>) -> u64 {
        let prices = set.items.iter().map(|item| match item {
            Selection::Field(field) if field.selection_set.items.is_empty() => 0,
            Selection::Field(field) => {
                self.first(field).saturating_mul(self.price_of(&field.selection_set, priced).saturating_add(1))
            }
            Selection::InlineFragment(fragment) => self.price_of(&fragment.selection_set, priced),
            Selection::FragmentSpread(spread) => {
                let name = spread.fragment_name;
                if let (None, Some(set)) = (priced.get(name), self.fragments.get(name)) {
                    priced.insert(name, u64::MAX);
                    let price = self.price_of(set, priced);
                    priced.insert(name, price);
                }
                priced.get(name).copied().unwrap_or(u64::MAX).saturating_add(1)
            }
        });
        prices.fold(0, u64::saturating_add)
    }

    /// Its answer, and how many objects that came to.
    pub(super) fn run(&self) -> (Map<String, Value>, u64) {
        let (mut data, mut touched) = (Map::new(), 0);
        self.resolve("shop", &self.root, &mut data, &mut touched);
        (data, touched)
    }

    /// Fills in the fields of an object, and counts the objects that it came to.
    fn resolve(&self, id: &str, set: &Selected<'a>, object: &mut Map<String, Value>, touched: &mut u64) {
        for item in &set.items {
            match item {
                Selection::InlineFragment(fragment) => self.resolve(id, &fragment.selection_set, object, touched),
                Selection::FragmentSpread(spread) => {
                    if let Some(set) = self.fragments.get(spread.fragment_name) {
                        self.resolve(id, set, object, touched);
                    }
                }
                Selection::Field(field) => {
                    let have = match field.name {
                        "products" => PRODUCTS,
                        "variants" => VARIANTS,
                        scalar => {
                            object.insert(field.alias.unwrap_or(scalar).into(), format!("{scalar} of {id}").into());
                            continue;
                        }
                    };
                    let list = (1..=have.min(self.first(field))).map(|number| {
                        let mut one = Map::new();
                        *touched += 1;
                        self.resolve(&format!("{id}/{number}"), &field.selection_set, &mut one, touched);
                        Value::from(one)
                    });
                    let list = list.collect();
                    object.insert(field.alias.unwrap_or(field.name).into(), list);
                }
            }
        }
    }
}
