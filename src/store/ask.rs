use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use smallvec::SmallVec;

use super::{Id, Tenant};
pub use crate::algorithm::Wait;
use crate::limit::{Limit, OnFailure, micros};

/// What a limiter asks of a store.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// One line for each rule that applies, then one for each of their bans, which has no cost and is judged all the same.
    pub lines: &'a [Line<'a>],
    /// What it is for.
    pub purpose: Purpose,
    /// Whose time counts.
    pub time: Time,
}

impl Ask<'_> {
    /// Whether the answer admits what was asked for: every line fits that is no [shadow](Line::shadow). If it was to be spent, each
    /// line was charged then that [fits](Verdict::wait).
    #[inline]
    pub fn admits(&self, answer: &Answer) -> bool {
        !self.lines.iter().zip(answer.verdicts()).any(|(line, verdict)| line.is_refused(verdict))
    }
}

/// What an ask is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Judge, and charge if every line fits; of [shadow](Line::shadow) lines those that do.
    Spend,
    /// Judge only; nothing is written.
    Peek,
    /// Charge what was admitted elsewhere: of each line's cost as much as is left, in whole units. Once for each id; every
    /// line then fits, and stands as it does afterwards.
    Take(Id),
    /// Charge what turned out to be due: what a token bucket lacks it owes, a ban counts it as strikes, of others as much is charged as
    /// is left. Once for each id; every line then fits, and stands as it does afterwards.
    Owe(Id),
    /// Give back what was charged: of each line's cost as much as still counts of the charge that its
    /// [receipt](Line::receipt) is for, and nothing if in doubt. Afterwards no more is left than if it had never been charged.
    /// Once for each id; every line then fits, and stands as it does afterwards.
    Give(Id),
    /// Extend leases: of each line, which is of a [concurrency](crate::Rule::concurrency) rule, the one that its receipt names. One
    /// that has expired, or is not known, is granted anew if there is room. A line fits if its lease is held afterwards.
    Renew,
    /// End leases, named in the same way. Every line then fits; what else its verdict says has no meaning. One that is not known
    /// has ended.
    Release,
}

impl Purpose {
    /// Whether somebody waits for a decision, and not only for a change that is to be made.
    #[inline]
    pub(crate) fn decides(self) -> bool {
        matches!(self, Purpose::Spend | Purpose::Peek)
    }

    /// The id of a change that is made once.
    #[inline]
    pub fn id(self) -> Option<Id> {
        match self {
            Purpose::Take(id) | Purpose::Owe(id) | Purpose::Give(id) => Some(id),
            Purpose::Spend | Purpose::Peek | Purpose::Renew | Purpose::Release => None,
        }
    }
}

/// Whose time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Time {
    /// The store's own: Redis `TIME`, or this machine's clock for the memory store.
    Store,
    /// The application's, in microseconds since the Unix epoch; clocks of its processes may differ by the tolerance.
    Application {
        /// Now.
        now: u64,
        /// In microseconds.
        tolerance: u64,
    },
    /// A test's, in microseconds; it may stand still or jump while real time passes.
    Injected(u64),
}

impl Time {
    /// The same moment for what is sent so much later: an application's clock has gone on, or the store would take it for one
    /// that has gone back.
    pub(crate) fn later(self, age: Duration) -> Time {
        match self {
            Time::Application { now, tolerance } => {
                Time::Application { now: now.saturating_add(micros(age)), tolerance }
            }
            // The store looks at its own clock, and a test's stands still.
            Time::Store | Time::Injected(_) => self,
        }
    }
}

/// One rule of an ask: which count, under which limit, for how much. `Debug` does not show the key.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// The rule's place in the store.
    pub scope: &'a Scope,
    /// The escaped key: see [`Key::as_bytes`](crate::key::Key::as_bytes).
    pub key: &'a [u8],
    /// The limit.
    pub limit: &'a Limit,
    /// The cost in units.
    pub cost: u64,
    /// What happens under the rule when the store gives no answer.
    pub on_failure: OnFailure,
    /// For [`Purpose::Give`]: the [receipt](Verdict::receipt) of the charge. Under a [concurrency](crate::Rule::concurrency) rule
    /// the name of the lease, whatever the purpose: a number that nobody else has. Of a line for a ban, with [`Purpose::Owe`]: the
    /// milliseconds of a ban by hand, or zero for strikes. Of no meaning elsewhere.
    pub receipt: u64,
    /// Whether the line is only to be watched: that it does not fit keeps no other from being charged, and its
    /// [`on_failure`](Line::on_failure) refuses nothing. If the others are charged, so is this one if it fits; if one of them does
    /// not fit, nothing is charged here either. Its verdict says the wait in any case.
    pub shadow: bool,
    /// Whether the request may use what the limit [reserves](crate::Rule::reserve).
    pub critical: bool,
    /// Who of those that share the limit it is: see [`Rule::fair_share`](crate::Rule::fair_share). `None` where it is not shared.
    pub tenant: Option<&'a Tenant>,
    /// For [`Purpose::Give`]: the [receipt](Verdict::tenant_receipt) of the tenant's part of the charge. Zero: there was none.
    pub tenant_receipt: u64,
}

impl<'a> Line<'a> {
    /// A line of an ordinary request without a receipt, with the default for failures, and not a shadow.
    #[inline]
    pub fn new(scope: &'a Scope, key: &'a [u8], limit: &'a Limit, cost: u64) -> Line<'a> {
        let on_failure = OnFailure::default();
        let (receipt, tenant_receipt) = (0, 0);
        Line {
            scope,
            key,
            limit,
            cost,
            on_failure,
            receipt,
            shadow: false,
            critical: false,
            tenant: None,
            tenant_receipt,
        }
    }

    /// The same line, to be given back what this verdict has charged.
    pub(crate) fn charged(self, verdict: &Verdict) -> Line<'a> {
        Line { receipt: verdict.receipt, tenant_receipt: verdict.tenant_receipt, ..self }
    }

    /// The count of its tenant, where an ask for this purpose has to do with that.
    #[inline]
    pub fn of_tenant(&self, purpose: Purpose) -> Option<Line<'a>> {
        let tenant = self.tenant?;
        let concerned = match purpose {
            Purpose::Spend | Purpose::Peek | Purpose::Owe(_) => true,
            Purpose::Give(_) => self.tenant_receipt > 0,
            // What was admitted elsewhere is charged for all of them in one.
            Purpose::Take(_) | Purpose::Renew | Purpose::Release => false,
        };
        concerned.then(|| Line { receipt: self.tenant_receipt, ..tenant.line(self.cost) })
    }

    /// The units that must be left for the line to fit: its cost, and for ordinary requests what the limit reserves. What is free
    /// needs nothing.
    #[inline]
    pub fn need(&self) -> u64 {
        if self.critical || self.cost == 0 { self.cost } else { self.cost.saturating_add(self.limit.reserved()) }
    }

    /// Whether the rule refuses what the store gives no answer to.
    pub(crate) fn refuses_unjudged(&self) -> bool {
        self.on_failure == OnFailure::Refuse && !self.shadow
    }

    /// Whether this verdict keeps the others from being charged.
    #[inline]
    pub(crate) fn is_refused(&self, verdict: &Verdict) -> bool {
        !verdict.wait.fits() && !self.shadow
    }

    /// The full name of the count, `namespace:v1:{key}:rule`, in three pieces.
    pub fn name(&self) -> [&[u8]; 3] {
        self.scope.name(self.key)
    }
}

impl std::fmt::Debug for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("limit", self.limit).field("cost", &self.cost).finish_non_exhaustive()
    }
}

/// The place of a rule in a store: its namespace and name, escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    before: Box<str>,
    after: Box<str>,
    number: u32,
    rule: Arc<str>,
}

impl Scope {
    /// The place of `rule` in `namespace`, which is plain text without braces.
    pub fn new(namespace: &str, rule: &str) -> Scope {
        let mut escaped = Vec::with_capacity(rule.len());
        crate::key::escape(rule.as_bytes(), &mut escaped);
        let before: Box<str> = [namespace, ":v1:{"].concat().into();
        let after: Box<str> = ["}:", &String::from_utf8_lossy(&escaped)].concat().into();
        Scope::of(before, after, rule.into())
    }

    fn of(before: Box<str>, after: Box<str>, rule: Arc<str>) -> Scope {
        let number = number_of([&*before, &*after].concat());
        Scope { before, after, number, rule }
    }

    /// The place of the rule's ban: `namespace:v1:{key}:rule#ban`, in the slot of its count. The names of rules have no such letter.
    pub fn for_ban(&self) -> Scope {
        Scope::of(self.before.clone(), format!("{}#ban", self.after).into(), Arc::clone(&self.rule))
    }

    /// The name of the rule.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// The same with the namespace as hash tag: names of all rules and keys fall into one slot of a Cluster,
    /// `{namespace}:v1:{key}:rule`.
    pub fn in_one_slot(namespace: &str, rule: &str) -> Scope {
        Scope::new(&format!("{{{namespace}}}"), rule)
    }

    /// The place of the counts of those who share the rule's limit.
    pub(crate) fn for_tenants(&self) -> Scope {
        Scope::of(self.before.clone(), format!("{}#share", self.after).into(), Arc::clone(&self.rule))
    }

    /// The hash tag that is the same for every key, if there is one.
    pub(crate) fn tag(&self) -> Option<&str> {
        let (tag, _) = self.before.split_once('{')?.1.split_once('}')?;
        (!tag.is_empty()).then_some(tag)
    }

    /// The full name of a key's count in three pieces.
    #[inline]
    pub(crate) fn name<'a>(&'a self, key: &'a [u8]) -> [&'a [u8]; 3] {
        [self.before.as_bytes(), key, self.after.as_bytes()]
    }

    /// A number that stands for the namespace and the rule in this process: equal where they are, and only there.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Numbers in the order of asking, kept for as long as the process runs. Names come from the application and its policies, so there are few:
/// far fewer than 2^24, which is what the memory store has room for.
fn number_of(name: String) -> u32 {
    type Numbers = HashMap<String, u32, foldhash::fast::RandomState>;
    static NUMBERS: LazyLock<Mutex<Numbers>> = LazyLock::new(Mutex::default);
    let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    let next = numbers.len() as u32;
    *numbers.entry(name).or_insert(next)
}

/// A store's answer: one verdict a line, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub(crate) verdicts: SmallVec<[Verdict; 1]>,
}

impl Answer {
    /// Adds the verdict of the next line.
    #[inline]
    pub fn push(&mut self, verdict: Verdict) {
        self.verdicts.push(verdict);
    }

    /// One for each line.
    #[inline]
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// Whether every line fits, shadows too: see [`Ask::admits`].
    #[inline]
    pub fn fits(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.wait.fits())
    }
}

/// How one line stands. Times are microseconds from the moment of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How long this line's cost must wait.
    pub wait: Wait,
    /// Units left: after the charge if the line was charged, otherwise as they are.
    pub remaining: u64,
    /// Until the limit is as good as untouched, or for a sliding log until its oldest entry leaves.
    pub reset_after: u64,
    /// Tells the store which charge this was, when it is to be [given back](Purpose::Give). What it means is the store's own
    /// affair; it holds in this process. Under a concurrency rule it is the name of the lease, as the line had it.
    pub receipt: u64,
    /// The same for the count of the line's [tenant](Line::tenant); zero where none was looked at.
    pub tenant_receipt: u64,
}
