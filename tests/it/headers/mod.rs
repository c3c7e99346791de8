//! Quota fields, read by parsers that are not ours.

mod build;
mod lists;
mod nested;
mod options;
mod presets;
mod properties;
mod retry_after;

use axum::{Router, routing::get};
use http::{HeaderMap, HeaderValue};
use sfv::{BareItem, List, ListEntry, Parser};
use sluicegate::{
    Clock, Headers, HeadersBuilder, Limiter, ManualClock, MemoryStore, RateLimitLayer, Rule,
    store::{Answer, Ask, Line, Store, StoreFuture, Verdict},
};

use crate::support::stores::BEGIN;

fn limiter(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    let builder = Limiter::builder(MemoryStore::new()).clock(Clock::manual(ManualClock::new(BEGIN)));
    rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound")
}

fn routes() -> Router {
    Router::new().route("/", get(|| async { "ok" }))
}

fn app(rules: impl IntoIterator<Item = Rule>) -> Router {
    routes().layer(RateLimitLayer::new(limiter(rules)))
}

/// With these fields, and nothing left to chance.
fn app_with(headers: HeadersBuilder, rules: impl IntoIterator<Item = Rule>) -> Router {
    routes().layer(layer(headers, limiter(rules)))
}

fn layer(headers: HeadersBuilder, limiter: Limiter) -> RateLimitLayer {
    RateLimitLayer::new(limiter).headers(headers.build().expect("sound")).jitter(false)
}

fn headers() -> HeadersBuilder {
    Headers::builder()
}

/// A list field over all its lines: names, and the integer parameters of each.
fn items(headers: &HeaderMap, name: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let entry = |(name, params): (BareItem, Vec<(String, BareItem)>)| {
        let BareItem::String(name) = name else { panic!("no string: {name:?}") };
        let integer = |(key, value)| match value {
            BareItem::Integer(number) => (key, i64::from(number)),
            other => panic!("no integer: {other:?}"),
        };
        (name.as_str().to_owned(), params.into_iter().map(integer).collect())
    };
    list(headers, name).into_iter().map(entry).collect()
}

/// A list field over all its lines: bare items, and the parameters of each.
fn list(headers: &HeaderMap, name: &str) -> Vec<(BareItem, Vec<(String, BareItem)>)> {
    let lines: Vec<_> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    let list: List = Parser::new(&lines.join(&b","[..])).parse().expect("a list of items");
    let item = |entry| match entry {
        ListEntry::Item(item) => {
            let params = item.params.into_iter().map(|(key, value)| (key.as_str().to_owned(), value));
            (item.bare_item, params.collect())
        }
        ListEntry::InnerList(list) => panic!("an inner list: {list:?}"),
    };
    list.into_iter().map(item).collect()
}

fn item(name: &str, params: &[(&str, i64)]) -> (String, Vec<(String, i64)>) {
    (name.to_owned(), params.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect())
}

/// A store that answers what it was told to.
#[derive(Clone, Debug)]
struct Scripted(Vec<Verdict>);

impl Store for Scripted {
    fn acquire_now(&self, ask: &Ask<'_>, answer: &mut Answer) -> Option<Result<(), sluicegate::StoreError>> {
        assert_eq!(ask.lines.len(), self.0.len(), "a verdict for each line");
        self.0.iter().for_each(|verdict| answer.push(*verdict));
        Some(Ok(()))
    }

    fn acquire<'a>(&'a self, _: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        unreachable!("the limiter asks acquire_now first")
    }

    fn reset<'a>(&'a self, _: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        unreachable!("nobody resets")
    }
}

/// A store that gives no answer.
#[derive(Clone, Copy, Debug)]
struct Down;

impl Store for Down {
    fn acquire<'a>(&'a self, _: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        let error = sluicegate::StoreError::new(sluicegate::StoreErrorKind::Unavailable, "down");
        Box::pin(async move { Err(error) })
    }

    fn reset<'a>(&'a self, _: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        unreachable!("nobody resets")
    }
}

fn scripted(rules: impl IntoIterator<Item = Rule>, verdicts: Vec<Verdict>) -> Limiter {
    let builder = Limiter::builder(Scripted(verdicts));
    rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound")
}
