//! Puts one script together from the parts in `lua/`, unrolled for a sequence of algorithms.
//!
//! A script is the same text for the same sequence, whatever the quotas, keys and costs, so its digest is too. Names that end
//! in `_N` belong to one rule: `level_N` becomes `level_1`, `level_2` and so on. Those in `_M` belong to the count of its tenant.

use super::naming::{Naming, name};
use crate::{
    algorithm::Params,
    store::{Line, Purpose},
};

/// An algorithm as the scripts tell them apart.
pub(super) type Kind = u8;

/// The files, in the order of [`algorithm_of`].
const ALGORITHMS: [File; 9] = [
    WINDOW,
    File { name: "sliding_log", text: include_str!("../../../lua/algorithms/sliding_log.lua") },
    File { name: "sliding_counter", text: include_str!("../../../lua/algorithms/sliding_counter.lua") },
    File { name: "token_bucket", text: include_str!("../../../lua/algorithms/token_bucket.lua") },
    File { name: "leaky_bucket", text: include_str!("../../../lua/algorithms/leaky_bucket.lua") },
    File { name: "gcra", text: include_str!("../../../lua/algorithms/gcra.lua") },
    File { name: "concurrency", text: include_str!("../../../lua/algorithms/concurrency.lua") },
    File { name: "ban", text: include_str!("../../../lua/algorithms/ban.lua") },
    File { name: "queue", text: include_str!("../../../lua/algorithms/queue.lua") },
];
/// Also how the use of tenants is counted.
const WINDOW: File = File { name: "fixed_window", text: include_str!("../../../lua/algorithms/fixed_window.lua") };
const ACQUIRE: File = File { name: "acquire", text: include_str!("../../../lua/ops/acquire.lua") };
const BATCH: File = File { name: "batch", text: include_str!("../../../lua/ops/batch.lua") };
const FAIR: File = File { name: "fair", text: include_str!("../../../lua/ops/fair.lua") };
const LEASES: File = File { name: "leases", text: include_str!("../../../lua/ops/leases.lua") };
const SETTLE: File = File { name: "settle", text: include_str!("../../../lua/ops/settle.lua") };

/// Every rule has these beside its algorithm's own names.
const COMMON_NAMES: &str = "repaired retry remaining reset";
/// The arguments before those of the rules.
pub(super) const COMMON_ARGS: &str = "now not_after tolerance margin spend";

/// Lua has 200 local variables, and sections have some of their own; beyond this the names of rules are fields of a table.
const MOST_LOCAL: usize = 170;

/// Added to the kind of a rule that must leave more than its cost: its need is an argument of its own.
pub(super) const SPARING: Kind = 64;
/// Added to that of a rule whose tenant has a part in it, and which then also has a need of its own: the counts of tenants come after
/// those of all rules, in the same order.
pub(super) const SHARED: Kind = 128;

/// The number of a tenant's count in a batch, where those of rules are their kinds.
const TENANT: usize = 256;

/// What stands for a shadow rule, and for another.
const SHADOW: u8 = b'1';
const ENFORCED: u8 = b'0';

/// The lines of a library before its script.
const LINES_BEFORE: usize = 2;

/// What a script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Acquire,
    Take,
    Owe,
    Give,
    /// Renews or ends leases: one text for any number of rules.
    Leases,
}

impl Operation {
    #[inline]
    pub(super) fn of(purpose: Purpose) -> Operation {
        match purpose {
            Purpose::Spend | Purpose::Peek => Operation::Acquire,
            Purpose::Take(_) => Operation::Take,
            Purpose::Owe(_) => Operation::Owe,
            Purpose::Give(_) => Operation::Give,
            Purpose::Renew | Purpose::Release => Operation::Leases,
        }
    }
}

#[derive(Clone, Copy)]
struct File {
    name: &'static str,
    text: &'static str,
}

impl File {
    /// The words of a line `--@ args limit window cost`.
    fn words(self, section: &str) -> &'static str {
        self.text.lines().find_map(|line| line.strip_prefix("--@ ")?.strip_prefix(section)).unwrap_or_default().trim()
    }
    fn has(self, section: &str) -> bool {
        self.section(section).next().is_some()
    }

    /// The lines between `--@ section` and the next mark, with their numbers.
    fn section(self, section: &str) -> impl Iterator<Item = (usize, &'static str)> {
        let lines = (1..).zip(self.text.lines());
        let mut lines = lines.skip_while(move |(_, line)| line.strip_prefix("--@ ") != Some(section));
        lines.next();
        lines.take_while(|(_, line)| !line.starts_with("--@ "))
    }
}

/// The sections that make a change without judging.
fn steps(operation: Operation, file: File) -> &'static [&'static str] {
    match operation {
        Operation::Acquire | Operation::Leases => &[],
        Operation::Give => &["give"],
        Operation::Owe if file.has("owe") => &["owe"],
        // What is left must be known first.
        Operation::Take | Operation::Owe => &["standing", "clamp", "charge"],
    }
}

fn algorithm(kind: Kind) -> Option<File> {
    ALGORITHMS.get(usize::from(kind % SPARING)).copied()
}

/// Which of the lines are shadows, as a script is told it: nothing if none is.
#[inline]
pub(super) fn shadow_of(lines: &[Line<'_>]) -> Option<Vec<u8>> {
    let flag = |line: &Line<'_>| if line.shadow { SHADOW } else { ENFORCED };
    lines.iter().any(|line| line.shadow).then(|| lines.iter().map(flag).collect())
}

/// How a script for this purpose treats a line.
#[inline]
pub(super) fn kind_of(line: &Line<'_>, purpose: Purpose) -> Kind {
    let shared = if line.of_tenant(purpose).is_some() { SHARED } else { 0 };
    shared + algorithm_of(line.limit.params())
}

fn algorithm_of(params: &Params) -> Kind {
    match params {
        Params::FixedWindow(_) => 0,
        Params::SlidingLog(_) => 1,
        Params::SlidingCounter(_) => 2,
        Params::TokenBucket(_) => 3,
        Params::LeakyBucket(_) => 4,
        Params::Gcra(_) => 5,
        Params::Concurrency(_) => 6,
        Params::Ban(_) => 7,
        Params::Queue(_) => 8,
    }
}

/// A script, and where each of its lines comes from.
pub(super) struct Assembled {
    pub(super) text: String,
    origins: Vec<(&'static str, usize)>,
    rules: Vec<(usize, File)>,
    /// Of these rules, those that leave more than their cost; none where nothing is judged.
    sparing: Vec<usize>,
    /// Of these, those that are shared, and the number of the tenant's count.
    shared: Vec<(usize, usize)>,
    wide: bool,
    /// Keys are those of the loop's place, and not of a rule's.
    looped: bool,
}

impl Assembled {
    /// The script that does this to rules of these algorithms, in this order.
    pub(super) fn new(operation: Operation, kinds: &[Kind]) -> Assembled {
        let rules: Vec<(usize, File)> =
            (1..).zip(kinds).filter_map(|(rule, kind)| Some((rule, algorithm(*kind)?))).collect();
        let of_kind = |least: Kind| (1..).zip(kinds).filter(move |(_, kind)| **kind >= least).map(|(rule, _)| rule);
        let judges = operation == Operation::Acquire;
        let sparing = if judges { of_kind(SPARING).collect() } else { Vec::new() };
        let shared = of_kind(SHARED).zip(kinds.len() + 1..).collect();
        let (text, origins) = (String::new(), Vec::new());
        let mut out = Assembled { text, origins, rules, sparing, shared, wide: false, looped: false };
        out.wide = out.locals(operation) > MOST_LOCAL;

        out.section(ACQUIRE, "begin", 0);
        out.bind(operation);
        out.section(ACQUIRE, "time", 0);
        for (tenant, file) in out.tenants() {
            out.section(file, "judge", tenant);
        }
        for (rule, file) in out.rules.clone() {
            out.section(file, "judge", rule);
            out.section(file, "wait", rule);
            if judges && out.tenant_of(rule).is_some() {
                out.section(FAIR, "begin", rule);
                out.section(file, "wait", rule);
                out.section(FAIR, "end", rule);
            }
        }
        match operation {
            Operation::Acquire => out.acquire(),
            Operation::Take | Operation::Owe | Operation::Give => out.settle(operation),
            Operation::Leases => out.section(LEASES, "each", 0),
        }
        out
    }

    /// The script that makes many changes to rules of these algorithms, in this order of algorithms.
    pub(super) fn batch(kinds: &[Kind]) -> Assembled {
        let rules = kinds.iter().filter_map(|kind| Some((usize::from(*kind), algorithm(*kind)?))).collect();
        let shared = kinds.iter().filter(|kind| **kind >= SHARED).map(|kind| (usize::from(*kind), TENANT)).collect();
        let (text, origins, sparing) = (String::new(), Vec::new(), Vec::new());
        let mut out = Assembled { text, origins, rules, sparing, shared, wide: false, looped: true };
        out.section(ACQUIRE, "begin", 0);
        let common = COMMON_ARGS.replace(' ', ", ");
        out.line(&format!("local {common} = unpack('<{}', ARGV[1])", "d".repeat(COMMON_ARGS.split(' ').count())));
        out.section(ACQUIRE, "time", 0);
        out.section(BATCH, "begin", 0);
        for (rule, file) in out.rules.clone() {
            out.line("do");
            out.section(BATCH, "count", rule);
            let tenant = out.tenant_of(rule).map(|tenant| (tenant, WINDOW));
            out.bind_next(rule, file, &["receipt", "owes"]);
            out.section(file, "judge", rule);
            out.section(file, "wait", rule);
            if let Some((tenant, file)) = tenant {
                out.section(BATCH, "tenant", rule);
                out.bind_next(tenant, file, &["receipt"]);
                out.section(file, "judge", tenant);
            }
            out.section(BATCH, "record", rule);
            out.line(&format!("if {} == 1 then", name("owes", rule, false)));
            for operation in [Operation::Owe, Operation::Give] {
                for (rule, file) in tenant.into_iter().chain([(rule, file)]) {
                    steps(operation, file).iter().for_each(|step| out.section(file, step, rule));
                }
                out.line(if operation == Operation::Owe { "else" } else { "end end" });
            }
            for (rule, file) in tenant.into_iter().chain([(rule, file)]) {
                out.section(file, "standing", rule);
                out.write_settled(file, rule, true);
            }
            out.section(file, "told", rule);
            out.line("end end");
        }
        out.section(BATCH, "end", 0);
        out
    }

    /// Binds the arguments of the next change in a batch, and declares its names.
    fn bind_next(&mut self, rule: usize, file: File, more: &[&'static str]) {
        let args = file.words("args").split(' ').chain(more.iter().copied());
        let args: Vec<String> = args.map(|word| name(word, rule, false)).collect();
        let names = [file.words("names"), COMMON_NAMES].join(" ");
        self.line(&format!("local {}", join(names.split(' ').map(|word| name(word, rule, false)), ", ")));
        self.line(&format!("local {}", args.join(", ")));
        self.line(&format!("{}, at = unpack('<{}', ARGV[1], at)", args.join(", "), "d".repeat(args.len())));
    }

    /// Stores what a change has made of a rule.
    fn write_settled(&mut self, file: File, rule: usize, back: bool) {
        self.section(SETTLE, "write_if", rule);
        if back && file.has("write_back") {
            self.line(&format!("if {} then", name("back", rule, self.wide)));
            self.section(file, "write_back", rule);
            self.line("else");
            self.section(file, "write", rule);
            self.line("end");
        } else {
            self.section(file, "write", rule);
        }
        self.line("end");
    }

    fn acquire(&mut self) {
        let (rules, wide) = (self.rules.clone(), self.wide);
        let fits = rules.iter().map(|(rule, _)| {
            format!("({} == 0 or shadow and shadow:byte({rule}) == {SHADOW})", name("retry", *rule, wide))
        });
        self.line("local shadow = ARGV[2]");
        self.line(&format!("local granted = spend == 1 and {}", join(fits, " and ")));
        // A tenant's use is counted where its rule is charged.
        let tenants =
            self.tenants().into_iter().zip(&self.shared).map(|((tenant, file), (rule, _))| (tenant, file, *rule));
        let counts: Vec<(usize, File, usize)> =
            rules.into_iter().map(|(rule, file)| (rule, file, rule)).chain(tenants).collect();
        for (rule, file, judged) in counts {
            self.line(&format!("do local granted = granted and {} == 0", name("retry", judged, wide)));
            self.line("if granted then");
            self.section(file, "charge", rule);
            self.line("end");
            self.section(file, "standing", rule);
            self.section(ACQUIRE, "write_if", rule);
            self.section(file, "write", rule);
            self.line("end end");
        }
        self.answer(|rule, wide| name("retry", rule, wide));
    }

    /// Makes the change.
    fn settle(&mut self, operation: Operation) {
        let counts: Vec<(usize, File)> = self.rules.iter().copied().chain(self.tenants()).collect();
        let record = counts.len() + 1;
        self.section(SETTLE, "judged", record);
        self.line("if granted then");
        for (rule, file) in counts.clone() {
            steps(operation, file).iter().for_each(|step| self.section(file, step, rule));
        }
        self.section(SETTLE, "record", record);
        self.line("end");
        for (rule, file) in counts {
            self.section(file, "standing", rule);
            self.write_settled(file, rule, operation == Operation::Give);
        }
        self.answer(|_, _| "0".to_owned());
    }

    fn answer(&mut self, retry: impl Fn(usize, bool) -> String) {
        let answers = self.rules.iter().flat_map(|(rule, _)| {
            [name("remaining", *rule, self.wide), retry(*rule, self.wide), name("reset", *rule, self.wide)]
        });
        // With the ends of the tenants' windows, by which their parts of the charge are found again.
        let tenants = self.shared.iter().map(|(_, tenant)| name("reset", *tenant, self.wide));
        self.line(&format!("return {{now, {}}}", join(answers.chain(tenants), ", ")));
    }

    /// The counts of tenants.
    fn tenants(&self) -> Vec<(usize, File)> {
        self.shared.iter().map(|(_, tenant)| (*tenant, WINDOW)).collect()
    }

    fn tenant_of(&self, rule: usize) -> Option<usize> {
        self.shared.iter().find(|(shared, _)| *shared == rule).map(|(_, tenant)| *tenant)
    }

    /// The arguments of a rule, or of a tenant's count.
    fn args_of(&self, operation: Operation, rule: usize, file: File) -> Vec<&'static str> {
        let need = self.sparing.contains(&rule).then_some("need");
        let judges = operation == Operation::Acquire;
        let fair = self.tenant_of(rule).filter(|_| judges).map(|_| FAIR.words("args").split(' '));
        // To give back is to know which charge.
        let receipt = (operation == Operation::Give).then_some("receipt");
        file.words("args").split(' ').chain(need).chain(fair.into_iter().flatten()).chain(receipt).collect()
    }

    /// How many names there are in all.
    fn locals(&self, operation: Operation) -> usize {
        let count = |(rule, file): &(usize, File)| {
            let names = [file.words("names"), COMMON_NAMES].join(" ");
            names.split(' ').count() + self.args_of(operation, *rule, *file).len()
        };
        self.rules.iter().chain(&self.tenants()).map(count).sum()
    }

    /// Binds the arguments and declares the names.
    fn bind(&mut self, operation: Operation) {
        let wide = self.wide;
        let common = COMMON_ARGS.replace(' ', ", ");
        let counts = self.rules.iter().copied().chain(self.tenants());
        let counts: Vec<(usize, File, Vec<&str>)> =
            counts.map(|(rule, file)| (rule, file, self.args_of(operation, rule, file))).collect();
        let args = |rule: usize, words: &[&str]| join(words.iter().map(|word| name(word, rule, wide)), ", ");
        if !wide {
            let all = counts.iter().map(|(rule, _, words)| format!(", {}", args(*rule, words))).collect::<String>();
            let words = COMMON_ARGS.split(' ').chain(counts.iter().flat_map(|(.., words)| words.iter().copied()));
            self.line(&format!("local {common}{all} = unpack('<{}', ARGV[1])", format(words)));
            for (rule, file, _) in &counts {
                let names = [file.words("names"), COMMON_NAMES].join(" ");
                self.line(&format!("local {}", join(names.split(' ').map(|word| name(word, *rule, false)), ", ")));
            }
            return;
        }
        let mut at = COMMON_ARGS.split(' ').count();
        self.line(&format!("local {common} = unpack('<{}', ARGV[1])", "d".repeat(at)));
        self.line("local R = {}");
        for (rule, _, words) in &counts {
            let format = format(words.iter().copied());
            self.line(&format!("{} = unpack('<{format}', ARGV[1], {})", args(*rule, words), at * 8 + 1));
            at += words.len();
        }
    }

    fn section(&mut self, file: File, section: &str, rule: usize) {
        for (number, line) in file.section(section) {
            let key = match (self.looped, rule) {
                (false, _) => rule.to_string(),
                (true, TENANT) => "tenant".to_owned(),
                (true, _) => "i".to_owned(),
            };
            let naming = Naming {
                rule,
                key: &key,
                wide: self.wide,
                spares: self.sparing.contains(&rule),
                tenant: self.tenant_of(rule),
            };
            naming.copy(line, &mut self.text);
            self.text.push('\n');
            self.origins.push((file.name, number));
        }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        self.origins.push(("the assembler", 0));
    }

    /// The script as a library of this name, with one function of the same name. `peek` names another that may not write.
    /// Nothing but the registering runs when it is loaded: Redis 7.0 has no commands then.
    pub(super) fn library(&self, name: &str, peek: Option<&str>) -> String {
        let peek = peek.map(|peek| {
            format!("redis.register_function{{function_name='{peek}', callback=run, flags={{'no-writes'}}}}\n")
        });
        format!(
            "#!lua name={name}\nlocal function run(KEYS, ARGV)\n{}end\nredis.register_function('{name}', run)\n{}",
            self.text,
            peek.unwrap_or_default()
        )
    }

    /// Where the line that a server names in an error, `user_script:12:`, comes from: `token_bucket.lua:34`.
    pub(super) fn origin_of(&self, error: &str) -> Option<String> {
        let (rest, before) = match error.split_once("user_script:") {
            Some((_, rest)) => (rest, 0),
            None => (error.split_once("user_function:")?.1, LINES_BEFORE),
        };
        let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
        let (file, line) = self.origins.get(digits.parse::<usize>().ok()?.checked_sub(1 + before)?)?;
        Some(format!("{file}.lua:{line}"))
    }
}

/// How arguments of these names are read: numbers, but for the name of a lease, which is eight bytes too.
fn format<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| if word == "id" { "c8" } else { "d" }).collect()
}

fn join(words: impl Iterator<Item = String>, with: &str) -> String {
    words.collect::<Vec<_>>().join(with)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sequence_is_one_text_and_another_is_another() {
        assert_eq!(Assembled::new(Operation::Acquire, &[3, 5]).text, Assembled::new(Operation::Acquire, &[3, 5]).text);
        assert_ne!(Assembled::new(Operation::Acquire, &[3, 5]).text, Assembled::new(Operation::Acquire, &[5, 3]).text);
    }

    #[test]
    fn no_name_of_a_rule_is_left_open() {
        for kinds in [
            &[0, 1, 2, 3, 4, 5, 6, 7, 8][..],
            &[64, 1, 66, 3, 68, 5, 70, 7, 72],
            &[1; 40],
            &[65; 40],
            &[128, 4, 129],
            &[131; 20],
        ] {
            let settling = [Operation::Take, Operation::Owe, Operation::Give];
            for operation in settling.into_iter().chain([Operation::Acquire, Operation::Leases]) {
                let text = Assembled::new(operation, kinds).text;
                assert!(!text.contains("_N") && !text.contains("[N]") && !text.contains("_M"), "{text}");
            }
        }
    }

    #[test]
    fn no_name_is_left_open_in_a_batch() {
        let text = Assembled::batch(&[0, 1, 2, 3, 4, 5, 7, 128, 131]).text;
        assert!(!text.contains("_N") && !text.contains("[N]") && !text.contains("_M"), "{text}");
        assert!(text.contains("KEYS[i]") && text.contains("KEYS[tenant]"), "{text}");
    }

    #[test]
    fn an_error_leads_back_to_its_file_and_line() {
        let script = Assembled::new(Operation::Acquire, &[5]);
        let line = 1 + script.text.lines().position(|line| line.contains("kind == 5")).unwrap_or(0);
        let origin = script.origin_of(&format!("ERR user_script:{line}: attempt to compare"));
        let number = 1 + ALGORITHMS[5].text.lines().position(|line| line.contains("kind == 5")).unwrap_or(0);
        assert_eq!(origin, Some(format!("gcra.lua:{number}")));

        let library = script.library("name", Some("peek"));
        let line = 1 + library.lines().position(|line| line.contains("kind == 5")).unwrap_or(0);
        let origin = script.origin_of(&format!("ERR user_function:{line}: attempt to compare"));
        assert_eq!(origin, Some(format!("gcra.lua:{number}")));
    }
}
