//! The algorithms, as pure integer arithmetic: state, parameters, time and cost in; answer and new state out.
//!
//! This is what [`MemoryStore`](crate::MemoryStore) runs, and it is the specification of the Lua that runs on Redis: random
//! traces through both must agree to the last microsecond and unit. Nothing here knows of clocks, tasks or servers.
//!
//! # Parts and ticks
//!
//! Lua numbers are doubles, exact below 2^53, so both sides keep to integers below that. A quota of `N` per `W` is
//! reduced to `n/w` by the greatest common divisor: one unit of quota is `w` parts, each tick adds `n` parts, a capacity
//! of `B` is `B * w` parts. A tick is one microsecond for nearly every quota; where the parts would not fit, a rule uses
//! 10, 100 or 1,000 microseconds. The tick is chosen when the rule is built, and a quota that fits none is refused there.
//! Verdicts change only at tick edges, so a coarse tick keeps the promise of `retry_after` too.
//!
//! # Five steps
//!
//! Every algorithm has the same five: `advance` brings stored state up to now, `wait` judges what a cost needs without spending
//! it: the cost, and what must be left for others; `charge` spends it, `give` gives back what still counts of a charge, and `left` answers what remains. A store judges every rule of a
//! request before it charges any. What was admitted elsewhere is not judged again: `take` charges as much of it as is left.
//!
//! # Repairs
//!
//! `advance` answers whether it had to *repair* the state: it was written by a clock that has since gone back, or under a
//! quota that has since changed, in a way that later answers depend on when this was noticed. A repaired state is stored
//! even when the request is refused, so that the wait promised now still holds later. Nothing else is stored on a refusal.

pub(crate) mod ban;
pub(crate) mod concurrency;
pub(crate) mod fair;
pub(crate) mod fixed_window;
pub(crate) mod gcra;
pub(crate) mod leaky_bucket;
mod month;
mod parts;
pub(crate) mod queue;
pub(crate) mod sliding_counter;
pub(crate) mod sliding_log;
pub(crate) mod token_bucket;

pub(crate) use fair::Fair;
pub(crate) use parts::{Parts, Rate};

/// Integers at or above this are not exact in Lua.
pub(crate) const EXACT: u64 = 1 << 53;

/// The instant a decision is made at, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Microseconds since the Unix epoch.
    pub(crate) now: u64,
    /// State this much ahead of `now` was written by a peer whose clock is a little ahead: time stands still until `now`
    /// has caught up. State further ahead is moved back to `now`.
    pub(crate) tolerance: u64,
    /// How much of that may be a peer's clock that is ahead, and goes on being so.
    pub(crate) peers: u64,
}

impl Moment {
    /// Where a state last written at `last` stands: the time to judge it at, and whether it must be moved back.
    fn meet(self, last: u64) -> (u64, bool) {
        match last.checked_sub(self.now) {
            None | Some(0) => (self.now, false),
            Some(ahead) if ahead <= self.tolerance => (last, false),
            Some(_) => (self.now, true),
        }
    }
}

/// How long a cost has to wait before it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It fits now.
    None,
    /// It fits, and its turn comes after this many microseconds: it has a slot in a [queue](crate::Rule::queue), or would have one.
    Turn(u64),
    /// It fits after this many microseconds and not one tick earlier.
    Micros(u64),
    /// It can never fit: the cost is above the capacity.
    Never,
}

impl Wait {
    /// Whether it fits, if only when its turn has come.
    #[inline]
    pub fn fits(self) -> bool {
        matches!(self, Wait::None | Wait::Turn(_))
    }
}

/// What is left after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) remaining: u64,
    pub(crate) reset_after: u64,
}

/// The parameters of one rule, checked when the rule was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Params {
    FixedWindow(fixed_window::Params),
    SlidingLog(sliding_log::Params),
    SlidingCounter(sliding_counter::Params),
    TokenBucket(Parts),
    LeakyBucket(Parts),
    Queue(queue::Params),
    Gcra(Parts),
    Concurrency(concurrency::Params),
    Ban(ban::Params),
}

/// What is remembered for one key of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    FixedWindow(fixed_window::State),
    SlidingLog(Box<sliding_log::State>),
    SlidingCounter(sliding_counter::State),
    TokenBucket(token_bucket::State),
    LeakyBucket(leaky_bucket::State),
    Gcra(gcra::State),
    Concurrency(Box<concurrency::State>),
    Ban(ban::State),
}

/// Calls one step of whichever algorithm it is; `advance` has made sure that the state is of the same.
macro_rules! step {
    ($self:ident, $state:ident, |$params:ident, $own:ident| $step:expr, else $other:expr) => {
        match ($self, $state) {
            (Params::FixedWindow($params), State::FixedWindow($own)) => $step,
            (Params::SlidingLog($params), State::SlidingLog($own)) => $step,
            (Params::SlidingCounter($params), State::SlidingCounter($own)) => $step,
            (Params::TokenBucket($params), State::TokenBucket($own)) => $step,
            (Params::LeakyBucket($params), State::LeakyBucket($own)) => $step,
            (Params::Queue($params), State::LeakyBucket($own)) => $step,
            (Params::Gcra($params), State::Gcra($own)) => $step,
            (Params::Concurrency($params), State::Concurrency($own)) => $step,
            (Params::Ban($params), State::Ban($own)) => $step,
            _ => $other,
        }
    };
}

impl State {
    /// A copy to go back to when nothing is spent. GCRA, logs and leases need none, since advancing changes nothing in them but
    /// for repairs, which are kept; unless it is a peek that would repair.
    #[inline]
    pub(crate) fn saved(&self, at: Moment, spend: bool) -> Option<State> {
        match self {
            State::Gcra(_) | State::Concurrency(_) if spend => None,
            State::SlidingLog(log) if spend || !log.is_ahead_of(at) => None,
            state => Some(state.clone()),
        }
    }
}

impl Params {
    /// The state of a key that was never seen.
    #[inline]
    pub(crate) fn fresh(&self) -> State {
        match self {
            Params::FixedWindow(_) => State::FixedWindow(fixed_window::State::default()),
            Params::SlidingLog(_) => State::SlidingLog(Box::default()),
            Params::SlidingCounter(_) => State::SlidingCounter(sliding_counter::State::default()),
            Params::TokenBucket(parts) => State::TokenBucket(token_bucket::State::full(parts)),
            Params::LeakyBucket(_) | Params::Queue(_) => State::LeakyBucket(leaky_bucket::State::default()),
            Params::Gcra(_) => State::Gcra(gcra::State::default()),
            Params::Concurrency(_) => State::Concurrency(Box::default()),
            Params::Ban(_) => State::Ban(ban::State::default()),
        }
    }

    /// Whether the state is of this algorithm. A rule that changes its algorithm starts afresh.
    #[inline]
    fn wrote(&self, state: &State) -> bool {
        step!(self, state, |_params, _own| true, else false)
    }

    /// Brings `state` up to the moment; answers whether it was repaired.
    #[inline]
    pub(crate) fn advance(&self, state: &mut State, at: Moment) -> bool {
        if !self.wrote(state) {
            *state = self.fresh();
        }
        step!(self, state, |params, own| Steps::advance(params, own, at), else false)
    }

    /// How long it takes until `need` units are there: a cost, and what must be left besides. Who needs nothing never waits, but for
    /// a ban, which refuses whatever the cost.
    #[inline]
    pub(crate) fn wait(&self, state: &State, at: Moment, need: u64) -> Wait {
        if need == 0 && !matches!(self, Params::Ban(_)) {
            return Wait::None;
        }
        step!(self, state, |params, own| Steps::wait(params, own, at, need), else Wait::Never)
    }

    /// Spends `cost`, whose need `wait` has found to be there. A concurrency limit grants the lease `id`; others have no use for it.
    #[inline]
    pub(crate) fn charge(&self, state: &mut State, at: Moment, cost: u64, id: u64) {
        if let (Params::Concurrency(params), State::Concurrency(own)) = (self, &mut *state)
            && cost > 0
        {
            params.hold(own, at, id);
        } else if cost > 0 {
            step!(self, state, |params, own| Steps::charge(params, own, at, cost), else ());
        }
    }

    /// Spends of `cost` as much as is left, in whole units; answers how much that was.
    pub(crate) fn take(&self, state: &mut State, at: Moment, cost: u64, id: u64) -> u64 {
        if let Params::Ban(_) = self {
            // Strikes are owed.
            return 0;
        }
        let cost = cost.min(self.left(state, at).remaining);
        self.charge(state, at, cost, id);
        cost
    }

    /// Spends `cost` though it may not be there: a token bucket owes what it lacks, a ban counts strikes, of others as much is spent
    /// as is left. Answers how much that was.
    pub(crate) fn owe(&self, state: &mut State, at: Moment, cost: u64, id: u64) -> u64 {
        match (self, state) {
            (Params::TokenBucket(parts), State::TokenBucket(own)) => {
                parts.owe(own, cost);
                cost
            }
            (Params::Ban(params), State::Ban(own)) => params.strike(own, at, cost, id),
            (_, state) => self.take(state, at, cost, id),
        }
    }

    /// Gives back of `cost` as much as still counts of the charge with this receipt; answers whether that was anything.
    pub(crate) fn give(&self, state: &mut State, at: Moment, cost: u64, receipt: u64) -> bool {
        step!(self, state, |params, own| Steps::give(params, own, at, cost, receipt), else false)
    }

    /// Extends the lease `id` of a concurrency limit: see [`concurrency::Params::renew`]. `None` under others.
    pub(crate) fn renew(&self, state: &mut State, at: Moment, id: u64, need: u64) -> Option<Wait> {
        let Params::Concurrency(params) = self else { return None };
        if !self.wrote(state) {
            *state = self.fresh();
        }
        let State::Concurrency(own) = state else { return None };
        Some(params.renew(own, at, id, need))
    }

    /// Ends the lease `id` of a concurrency limit; `false` if there is none.
    pub(crate) fn release(&self, state: &mut State, id: u64) -> bool {
        let State::Concurrency(own) = state else { return false };
        concurrency::Params::release(own, id)
    }

    /// Finds a charge again that was made at `now` and left so much to wait: when the window ends that it fell into, when a
    /// bucket forgets it, or for a log, which knows each charge, the moment itself. A lease was given an `id` by whoever asked.
    #[inline]
    pub(crate) fn receipt(&self, now: u64, reset_after: u64, id: u64) -> u64 {
        match self {
            Params::Concurrency(_) => id,
            Params::SlidingLog(_) => now,
            Params::Ban(_) => 0,
            _ => now.saturating_add(reset_after),
        }
    }

    /// What a fixed window has in use, of which so much is left; zero under others.
    pub(crate) fn used(&self, left: Left) -> u64 {
        match self {
            Params::FixedWindow(params) => params.limit.saturating_sub(left.remaining),
            _ => 0,
        }
    }

    /// What is left.
    #[inline]
    pub(crate) fn left(&self, state: &State, at: Moment) -> Left {
        step!(self, state, |params, own| Steps::left(params, own, at), else Left { remaining: 0, reset_after: 0 })
    }

    /// After this many microseconds the state says no more than a fresh one.
    #[inline]
    pub(crate) fn idle_after(&self, state: &State, at: Moment, left: Left) -> u64 {
        match (self, state) {
            (Params::SlidingLog(params), State::SlidingLog(own)) => params.idle_after(own, at),
            (Params::Concurrency(_), State::Concurrency(own)) => concurrency::Params::idle_after(own, at),
            (Params::SlidingCounter(params), State::SlidingCounter(_)) => left.reset_after + params.window_micros(),
            _ => left.reset_after,
        }
    }
}

/// The five steps, alike for every algorithm.
trait Steps<S> {
    fn advance(&self, state: &mut S, at: Moment) -> bool;
    fn wait(&self, state: &S, at: Moment, need: u64) -> Wait;
    fn charge(&self, state: &mut S, at: Moment, cost: u64);
    /// Never more than still counts of the charge with this [receipt](Params::receipt): afterwards no more is left, now or later,
    /// than if it had never been made. Answers whether anything was given.
    fn give(&self, state: &mut S, at: Moment, cost: u64, receipt: u64) -> bool;
    fn left(&self, state: &S, at: Moment) -> Left;
}
