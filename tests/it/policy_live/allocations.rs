//! What resolving a policy allocates: the customer's key, and nothing else.

use std::{
    convert::Infallible,
    future::{Future, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{Request, Response};
use http_body_util::Empty;
use sluicegate::{Headers, Limiter, MemoryStore, RateLimitLayer};
use tower::{Layer, Service, service_fn};

use super::policy;

fn rule(number: u64, more: &str) -> String {
    let quota = format!("900000/{}s", number % 3 + 1);
    format!(
        "[[rules]]\nname = \"rule-{number}\"\nalgorithm = \"gcra\"\nquota = {quota:?}\nkey = \"header:x-customer\"\n{more}"
    )
}

/// Fifty rules of which three apply, ten tiers, and a customer with an override.
fn fifty() -> String {
    let far = |number: u64| if number < 3 { String::new() } else { format!("paths = [\"/v1/{number}/{{id}}\"]\n") };
    let rules = (0..50).map(|number| rule(number, &far(number)));
    let tiers = (0..10).map(|tier| format!("[tiers.tier-{tier}]\nrule-0 = \"{}/s\"\n", 100 + tier));
    let by = "[customer]\nby = \"header:x-customer\"\n[tier]\nby = \"header:x-tier\"\ndefault = \"tier-0\"\n";
    let own = "[overrides.acme.rules]\nrule-0 = \"900000/s\"\n";
    format!("{by}{}{}{own}", rules.collect::<String>(), tiers.collect::<String>())
}

/// How often a request allocates, once everything about it is known.
fn allocations(text: &str) -> u64 {
    let limiter = Limiter::builder(MemoryStore::new()).policy(policy(text)).build().expect("sound");
    let answer = |_: Request<()>| ready(Ok::<_, Infallible>(Response::new(Empty::<&[u8]>::new())));
    let mut service = RateLimitLayer::new(limiter).headers(Headers::none()).layer(service_fn(answer));
    let mut ask = || {
        let request = Request::builder().uri("/v1/charges/7").header("x-customer", "acme").header("x-tier", "tier-7");
        let future = pin!(service.call(request.body(()).expect("a request")));
        let Poll::Ready(Ok(response)) = future.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("memory answers at once")
        };
        assert_eq!(response.status(), 200);
    };
    ask();
    ask();
    allocation_counter::measure(ask).count_total
}

#[test]
fn a_request_allocates_for_its_customers_key_and_no_more() {
    let three: String = (0..3).map(|number| rule(number, "")).collect();
    assert_eq!(allocations(&fifty()), allocations(&three) + 1);
}
