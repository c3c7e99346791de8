//! Rules that change while a limiter runs: policies, their tiers, and overrides for customers.
//!
//! A policy becomes a snapshot: a limiter of its own for each tier, which share the store and everything else that is not a rule. A request
//! takes one of them, and sees no other until it is done. A customer with an override gets a limiter too, made when it is first asked
//! for; all of them share the rules that are not replaced.

mod make;
mod overrides;
mod paths;
mod snapshot;
mod whose;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use http::request::Parts;

use self::snapshot::Snapshot;
use self::{make::Making, overrides::Overrides};
pub(crate) use self::{
    paths::{Paths, Places},
    snapshot::Held,
    whose::{Taken, Whose},
};
use super::{Core, Limiter, Now, ground::Ground};
use crate::{
    error::BuildError,
    key::{Found, Key},
    limit::Rule,
    lists::Lists,
    observer::PolicyEvent,
    policy::{Lookup, Names, Override, Policy, PolicyError, PolicyStatus},
};

/// A limiter's rules as they change.
pub(crate) struct Live {
    current: ArcSwap<Snapshot>,
    making: Making,
    overrides: Overrides,
    /// The policy before the current one, and who changes it has the lock. It goes when the next one comes: were it to go with the last request
    /// that holds it, that request would wait until all its rules are taken apart.
    before: Mutex<Option<Arc<Snapshot>>>,
    /// What was wrong with the newest that could not be used. Apart, since nobody who asks is to wait for a change.
    refused: Mutex<Option<String>>,
}

/// What a builder was told of policies.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) policy: Option<Policy>,
    pub(super) names: Names,
    pub(super) lookup: Option<Lookup>,
}

impl Wanted {
    pub(super) fn is_given(&self) -> bool {
        self.policy.is_some()
    }

    pub(super) fn make(
        self,
        core: &Arc<Core>,
        ground: Ground,
        rules: Vec<Rule>,
        lists: Option<Lists>,
    ) -> Result<Live, BuildError> {
        let Some(policy) = self.policy else { return Err(BuildError::new("policy", "is missing; say .policy(..)")) };
        let making = Making { core: Arc::clone(core), ground, rules, lists, names: self.names };
        Live::new(making, policy, self.lookup).map_err(|error| BuildError::new("policy", error.to_string()))
    }
}

impl Live {
    fn new(making: Making, policy: Policy, lookup: Option<Lookup>) -> Result<Live, PolicyError> {
        let snapshot = making.snapshot(policy, 1, None)?;
        Ok(Live {
            current: ArcSwap::from_pointee(snapshot),
            making,
            overrides: Overrides::new(lookup),
            before: Mutex::default(),
            refused: Mutex::default(),
        })
    }

    /// Puts a policy in the place of the one before it. If it cannot be used, that one stays.
    pub(super) fn change(&self, policy: Policy) -> Result<(), PolicyError> {
        let mut before = lock(&self.before);
        let current = self.current.load_full();
        let snapshot = self.making.snapshot(policy, current.version() + 1, Some(&current))?;
        let version = snapshot.version();
        self.current.store(Arc::new(snapshot));
        let gone = before.replace(current);
        *lock(&self.refused) = None;
        drop(before);
        // Many rules take a while to take apart, and whoever waits for the new ones need not wait for that.
        let _ = std::thread::Builder::new().name("sluicegate-policy".into()).spawn(move || drop(gone));
        self.making.core.doors.tell_of_change();
        tracing::info!(version, "another policy holds");
        self.tell(&PolicyEvent::Changed { version });
        Ok(())
    }

    /// Notes what is wrong with the newest policy, or that nothing is.
    pub(super) fn note_refused(&self, wrong: Option<String>) {
        lock(&self.refused).clone_from(&wrong);
        if let Some(error) = wrong {
            self.tell(&PolicyEvent::Refused { error });
        }
    }

    fn tell(&self, event: &PolicyEvent) {
        if let Some(observer) = &self.making.core.observer {
            observer.policy(event);
        }
    }

    pub(super) fn status(&self) -> PolicyStatus {
        let refused = lock(&self.refused).clone();
        let current = self.current.load();
        PolicyStatus::new(Arc::clone(current.policy()), current.version(), refused)
    }

    /// The limiter of whoever has neither tier nor override.
    pub(super) fn usual(&self) -> Limiter {
        let snapshot = self.current.load();
        snapshot.of_tier(snapshot.usual_tier()).clone()
    }

    /// The limiter of a tier.
    pub(super) fn named(&self, tier: &str) -> Limiter {
        let snapshot = self.current.load();
        snapshot.of_tier(snapshot.tier_named(Some(tier))).clone()
    }

    pub(super) fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    pub(super) fn of_request(&self, head: &Parts) -> Now<'_> {
        let snapshot = self.current.load();
        let tier = snapshot.tier_of(head);
        if let Some(customer) = snapshot.customer_by()
            && self.overrides.are_any(&snapshot)
            && let Some(Found::Key(key)) = customer.find_now(head)
            && let Some(limiter) = self.overrides.find(self, &snapshot, tier, &key)
        {
            return Now::Own(limiter);
        }
        Now::Held(Held::new(snapshot, tier))
    }

    /// The limiter of a customer with this override; `None` where it cannot be made, which is told: then it is the tier's.
    fn overridden(&self, snapshot: &Snapshot, tier: Option<usize>, own: &Override, key: &Key) -> Option<Limiter> {
        let first = self.making.rules.len();
        let place = |name: &str| {
            let index = usize::from(snapshot.base.rules().named(name)?.index()).checked_sub(first)?;
            Some((index, snapshot.planned.get(index)?))
        };
        let make = || {
            if let Some(name) = own.tier_name().filter(|name| !snapshot.has_tier(name)) {
                return Err(format!("no tier is named {name:?}"));
            }
            let tier = own.tier_name().map_or(tier, |name| snapshot.tier_named(Some(name)));
            let replacements =
                own.replacements(place, snapshot.replaced_by(tier)).map_err(|error| error.to_string())?;
            self.making.overridden(snapshot, tier, replacements).map_err(|error| error.to_string())
        };
        match make() {
            Ok(limiter) => Some(limiter),
            Err(error) => {
                if self.overrides.is_news(key, &error) {
                    let customer = String::from_utf8_lossy(key.as_bytes());
                    tracing::error!(%customer, %error, "the override of a customer cannot be used; its tier holds");
                }
                None
            }
        }
    }

    pub(super) async fn of_customer(&self, key: &Key, tier: Option<&str>) -> Limiter {
        let snapshot = self.current.load_full();
        let tier = snapshot.tier_named(tier);
        match self.overrides.look(self, &snapshot, tier, key).await {
            Some(limiter) => limiter,
            None => snapshot.of_tier(tier).clone(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("version", &self.current.load().version()).finish_non_exhaustive()
    }
}
