//! Charges, returns and repeated returns at random, over several rules at once, against a model that knows nothing of
//! algorithms: while time stands still every limit is a number of units.

use std::{collections::HashMap, sync::Arc, time::Duration};

use sluicegate::{
    Limit, MemoryStore, Quota,
    store::{Answer, Ask, Id, Line, Purpose, Scope, Store, Time, Wait},
};

use crate::{
    support::{
        cluster::Cluster,
        dice::Dice,
        load::soak,
        server::{VERSIONS, Version},
        stores::{BEGIN, namespace, patient, patient_with_functions},
    },
    traces::{NAMES, rule},
};

const KEYS: [&str; 3] = ["one", "two", "three"];
/// Of the rules by name; the last, whose window is a month, outlasts the walk.
const CAPACITIES: [u64; 7] = [5, 9, 14, 20, 30, 40, 60];

/// A rule and a key, by their places.
type Count = (usize, usize);

/// What was charged, and how much of it.
struct Charge {
    lines: Vec<(Count, u64, u64)>,
    /// Long ago: none of it counts any more.
    stale: bool,
}

struct Walk<'a> {
    store: &'a dyn Store,
    scopes: Vec<Scope>,
    limits: Vec<Limit>,
    dice: Dice,
    now: Duration,
    /// How much of each count is spent.
    spent: HashMap<Count, u64>,
    charges: Vec<Charge>,
    /// How many were admitted, refused, and given back: all of them must come up.
    tally: [u64; 3],
}

impl<'a> Walk<'a> {
    fn new(store: &'a dyn Store, seed: u64) -> Walk<'a> {
        let namespace = namespace();
        let limits = NAMES.iter().zip(CAPACITIES).map(|(name, amount)| rule(name, Quota::per_hour(amount), amount));
        Walk {
            store,
            scopes: NAMES.iter().map(|name| Scope::new(&namespace, name)).collect(),
            limits: limits.map(|rule| rule.check().expect("sound")).collect(),
            dice: Dice::new(seed),
            now: BEGIN,
            spent: HashMap::new(),
            charges: Vec::new(),
            tally: [0; 3],
        }
    }

    fn left(&self, count: Count) -> u64 {
        CAPACITIES[count.0] - self.spent.get(&count).unwrap_or(&0)
    }

    /// Up to four rules, each with a key and a cost of its own.
    fn some_lines(&mut self) -> Vec<(Count, u64, u64)> {
        let first = self.dice.below(7) as usize;
        let many = 1 + self.dice.below(4) as usize;
        (first..first + many).map(|place| ((place % 7, self.dice.below(3) as usize), self.dice.below(7), 0)).collect()
    }

    /// `shadows`: a bit for each line that is one.
    async fn ask(&self, lines: &[(Count, u64, u64)], purpose: Purpose, shadows: u64) -> Answer {
        let line = |(place, ((rule, key), cost, receipt)): (u32, &(Count, u64, u64))| {
            let line = Line::new(&self.scopes[*rule], KEYS[*key].as_bytes(), &self.limits[*rule], *cost);
            Line { receipt: *receipt, shadow: shadows >> place & 1 == 1, ..line }
        };
        let lines: Vec<Line<'_>> = (0..).zip(lines).map(line).collect();
        let time = Time::Injected(self.now.as_micros() as u64);
        self.store.acquire(&Ask { lines: &lines, purpose, time }).await.expect("an answer")
    }

    /// The store must say of each line what the model says.
    fn compare(&self, lines: &[(Count, u64, u64)], answer: &Answer, what: &str) {
        let expected: Vec<u64> = lines.iter().map(|(count, ..)| self.left(*count)).collect();
        let got: Vec<u64> = answer.verdicts().iter().map(|verdict| verdict.remaining).collect();
        assert_eq!(got, expected, "{what} of {lines:?}");
    }

    async fn spend(&mut self) {
        let mut lines = self.some_lines();
        // A third of the requests have shadow rules among theirs.
        let shadows = if self.dice.below(3) == 0 { self.dice.below(16) } else { 0 };
        let fits = |(count, cost, _): &(Count, u64, u64)| *cost <= self.left(*count);
        let expected: Vec<bool> = lines.iter().map(fits).collect();
        let answer = self.ask(&lines, Purpose::Spend, shadows).await;
        let got: Vec<bool> = answer.verdicts().iter().map(|verdict| verdict.wait == Wait::None).collect();
        assert_eq!(got, expected, "{lines:?} {shadows:b}");
        // Whether a shadow fits matters to nobody but itself.
        let admitted = (0..).zip(&expected).all(|(place, fits)| *fits || shadows >> place & 1 == 1);
        if admitted {
            for ((count, cost, receipt), verdict) in lines.iter_mut().zip(answer.verdicts()) {
                if verdict.wait == Wait::None {
                    *self.spent.entry(*count).or_default() += *cost;
                    *receipt = verdict.receipt;
                }
            }
        }
        self.compare(&lines, &answer, "a request");
        self.tally[usize::from(!admitted)] += 1;
        if admitted {
            let mut fits = expected.into_iter();
            lines.retain(|_| fits.next() == Some(true));
            if !lines.is_empty() {
                self.charges.push(Charge { lines, stale: false });
            }
        }
    }

    /// As much as is left, once for the id.
    async fn take(&mut self) {
        let lines = self.some_lines();
        let purpose = Purpose::Take(Id::random());
        let mut answer = self.ask(&lines, purpose, 0).await;
        for (count, cost, _) in &lines {
            let taken = (*cost).min(self.left(*count));
            *self.spent.entry(*count).or_default() += taken;
        }
        for _ in 0..self.dice.below(3) {
            self.compare(&lines, &answer, "a commit");
            answer = self.ask(&lines, purpose, 0).await;
        }
        self.compare(&lines, &answer, "a commit");
    }

    /// A charge or a part of it, once for the id however often it is asked for.
    async fn give(&mut self) {
        if self.charges.is_empty() {
            return;
        }
        let place = self.dice.below(self.charges.len() as u64) as usize;
        let mut charge = self.charges.swap_remove(place);
        let whole = self.dice.below(2) == 0;
        for (count, cost, _) in &mut charge.lines {
            *cost = if whole { *cost } else { self.dice.below(*cost + 1) };
            if !charge.stale {
                *self.spent.get_mut(count).expect("it was charged") -= *cost;
            }
        }
        let purpose = Purpose::Give(Id::random());
        for _ in 0..1 + self.dice.below(3) {
            let answer = self.ask(&charge.lines, purpose, 0).await;
            self.compare(&charge.lines, &answer, if charge.stale { "a late return" } else { "a return" });
        }
        self.tally[2] += 1;
    }

    /// So long that every limit is as good as untouched. Some of what was charged is given back only after that.
    fn pass(&mut self) {
        self.now += Duration::from_secs(3 * 3_600);
        self.spent.clear();
        self.charges.truncate(4);
        self.charges.iter_mut().for_each(|charge| charge.stale = true);
    }

    async fn run(mut self, cases: u64) {
        for _ in 0..cases {
            match self.dice.below(40) {
                0..20 => self.spend().await,
                20..36 => self.give().await,
                36..39 => self.take().await,
                _ => self.pass(),
            }
        }
        // Nothing is lost or made of nothing in any count.
        for count in (0..CAPACITIES.len()).flat_map(|rule| (0..KEYS.len()).map(move |key| (rule, key))) {
            let lines = [(count, 0, 0)];
            let answer = self.ask(&lines, Purpose::Peek, 0).await;
            self.compare(&lines, &answer, "the end");
        }
        assert!(self.tally.iter().all(|times| *times > cases / 20), "{:?} of {cases}", self.tally);
    }
}

fn cases(few: u64) -> u64 {
    if soak() { 100_000 } else { few }
}

#[tokio::test]
async fn charges_and_returns_in_memory_are_those_of_the_model() {
    Walk::new(&MemoryStore::new(), 1).run(cases(20_000)).await;
}

#[tokio::test]
async fn charges_and_returns_on_servers_are_those_of_the_model() {
    let scripts = VERSIONS.map(|version| -> Arc<dyn Store> { Arc::new(patient(&version.shared().url())) });
    let functions = [Version::Redis7, Version::Valkey9];
    let functions =
        functions.map(|version| -> Arc<dyn Store> { Arc::new(patient_with_functions(&version.shared().url())) });
    for (seed, store) in (2..).zip(scripts.iter().chain(&functions)) {
        Walk::new(&**store, seed).run(cases(1_500)).await;
    }
}

/// Rules of one request lie in several slots: what is granted in one is given back when another refuses, and whoever asks
/// next over the same connections finds it so.
#[tokio::test]
async fn charges_and_returns_in_clusters_are_those_of_the_model() {
    let store = Cluster::shared(Version::Valkey9).builder().connections(1).deadline(Duration::from_secs(30)).build();
    Walk::new(&store.expect("sound"), 9).run(cases(1_500)).await;
}
