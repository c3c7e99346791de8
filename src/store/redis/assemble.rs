//! Puts one script together from the parts in `lua/`, unrolled for a sequence of algorithms.
//!
//! A script is the same text for the same sequence, whatever the quotas, keys and costs, so its digest is too. Names that end
//! in `_N` belong to one rule: `level_N` becomes `level_1`, `level_2` and so on.

use std::fmt::Write;

use crate::{algorithm::Params, store::Purpose};

/// An algorithm as the scripts tell them apart.
pub(super) type Kind = u8;

/// The files, in the order of [`kind_of`].
const ALGORITHMS: [File; 8] = [
    File { name: "fixed_window", text: include_str!("../../../lua/algorithms/fixed_window.lua") },
    File { name: "sliding_log", text: include_str!("../../../lua/algorithms/sliding_log.lua") },
    File { name: "sliding_counter", text: include_str!("../../../lua/algorithms/sliding_counter.lua") },
    File { name: "token_bucket", text: include_str!("../../../lua/algorithms/token_bucket.lua") },
    File { name: "leaky_bucket", text: include_str!("../../../lua/algorithms/leaky_bucket.lua") },
    File { name: "gcra", text: include_str!("../../../lua/algorithms/gcra.lua") },
    File { name: "concurrency", text: include_str!("../../../lua/algorithms/concurrency.lua") },
    File { name: "queue", text: include_str!("../../../lua/algorithms/queue.lua") },
];
const ACQUIRE: File = File { name: "acquire", text: include_str!("../../../lua/ops/acquire.lua") };
const BATCH: File = File { name: "batch", text: include_str!("../../../lua/ops/batch.lua") };
const LEASES: File = File { name: "leases", text: include_str!("../../../lua/ops/leases.lua") };
const SETTLE: File = File { name: "settle", text: include_str!("../../../lua/ops/settle.lua") };

/// Every rule has these beside its algorithm's own names.
const COMMON_NAMES: &str = "repaired retry remaining reset";
/// The arguments before those of the rules.
pub(super) const COMMON_ARGS: &str = "now not_after tolerance margin spend";

/// Lua has 200 local variables; from here on the names of rules are fields of a table.
const MOST_LOCAL: usize = 12;

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

pub(super) fn kind_of(params: &Params) -> Kind {
    match params {
        Params::FixedWindow(_) => 0,
        Params::SlidingLog(_) => 1,
        Params::SlidingCounter(_) => 2,
        Params::TokenBucket(_) => 3,
        Params::LeakyBucket(_) => 4,
        Params::Gcra(_) => 5,
        Params::Concurrency(_) => 6,
        Params::Queue(_) => 7,
    }
}

/// A script, and where each of its lines comes from.
pub(super) struct Assembled {
    pub(super) text: String,
    origins: Vec<(&'static str, usize)>,
    rules: Vec<(usize, File)>,
    wide: bool,
    /// Keys are those of the loop's place, and not of a rule's.
    looped: bool,
}

impl Assembled {
    /// The script that does this to rules of these algorithms, in this order.
    pub(super) fn new(operation: Operation, kinds: &[Kind]) -> Assembled {
        let wide = kinds.len() > MOST_LOCAL;
        let rules: Vec<(usize, File)> =
            (1..).zip(kinds).filter_map(|(rule, kind)| Some((rule, *ALGORITHMS.get(usize::from(*kind))?))).collect();
        let mut out = Assembled { text: String::new(), origins: Vec::new(), rules, wide, looped: false };

        out.section(ACQUIRE, "begin", 0);
        out.bind(operation);
        out.section(ACQUIRE, "time", 0);
        out.each(&["judge"]);
        match operation {
            Operation::Acquire => out.acquire(),
            Operation::Take | Operation::Owe | Operation::Give => out.settle(operation),
            Operation::Leases => out.section(LEASES, "each", 0),
        }
        out
    }

    /// The script that makes many changes to rules of these algorithms, in this order of algorithms.
    pub(super) fn batch(kinds: &[Kind]) -> Assembled {
        let rules = kinds.iter().filter_map(|kind| Some((usize::from(*kind), *ALGORITHMS.get(usize::from(*kind))?)));
        let mut out =
            Assembled { text: String::new(), origins: Vec::new(), rules: rules.collect(), wide: false, looped: true };
        out.section(ACQUIRE, "begin", 0);
        let common = COMMON_ARGS.replace(' ', ", ");
        out.line(&format!("local {common} = unpack('<{}', ARGV[1])", "d".repeat(COMMON_ARGS.split(' ').count())));
        out.section(ACQUIRE, "time", 0);
        out.section(BATCH, "begin", 0);
        for (rule, file) in out.rules.clone() {
            out.line("do");
            out.section(BATCH, "count", rule);
            let args = file.words("args").split(' ').chain(["receipt", "owes"]);
            let args: Vec<String> = args.map(|word| name(word, rule, false)).collect();
            let names = [file.words("names"), COMMON_NAMES].join(" ");
            out.line(&format!("local {}", join(names.split(' ').map(|word| name(word, rule, false)), ", ")));
            out.line(&format!("local {}", args.join(", ")));
            out.line(&format!("{}, at = unpack('<{}', ARGV[1], at)", args.join(", "), "d".repeat(args.len())));
            out.section(file, "judge", rule);
            out.section(BATCH, "record", rule);
            out.line(&format!("if {} == 1 then", name("owes", rule, false)));
            steps(Operation::Owe, file).iter().for_each(|step| out.section(file, step, rule));
            out.line("else");
            steps(Operation::Give, file).iter().for_each(|step| out.section(file, step, rule));
            out.line("end end");
            out.section(file, "standing", rule);
            out.write_settled(file, rule, true);
            out.line("end end");
        }
        out.section(BATCH, "end", 0);
        out
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
        let fits = self.rules.iter().map(|(rule, _)| name("retry", *rule, self.wide) + " == 0");
        self.line(&format!("local granted = spend == 1 and {}", join(fits, " and ")));
        self.line("if granted then");
        self.each(&["charge"]);
        self.line("end");
        for (rule, file) in self.rules.clone() {
            self.section(file, "standing", rule);
            self.section(ACQUIRE, "write_if", rule);
            self.section(file, "write", rule);
            self.line("end");
        }
        self.answer(|rule, wide| name("retry", rule, wide));
    }

    /// Makes the change.
    fn settle(&mut self, operation: Operation) {
        let record = self.rules.len() + 1;
        self.section(SETTLE, "judged", record);
        self.line("if granted then");
        for (rule, file) in self.rules.clone() {
            steps(operation, file).iter().for_each(|step| self.section(file, step, rule));
        }
        self.section(SETTLE, "record", record);
        self.line("end");
        for (rule, file) in self.rules.clone() {
            self.section(file, "standing", rule);
            self.write_settled(file, rule, operation == Operation::Give);
        }
        self.answer(|_, _| "0".to_owned());
    }

    fn answer(&mut self, retry: impl Fn(usize, bool) -> String) {
        let answers = self.rules.iter().flat_map(|(rule, _)| {
            [name("remaining", *rule, self.wide), retry(*rule, self.wide), name("reset", *rule, self.wide)]
        });
        self.line(&format!("return {{now, {}}}", join(answers, ", ")));
    }

    /// Binds the arguments and declares the names.
    fn bind(&mut self, operation: Operation) {
        let (rules, wide) = (self.rules.clone(), self.wide);
        let common = COMMON_ARGS.replace(' ', ", ");
        // To give back is to know which charge.
        let receipt = (operation == Operation::Give).then_some("receipt");
        let words = |file: &File| file.words("args").split(' ').chain(receipt);
        let args = |rule: usize, file: &File| join(words(file).map(|word| name(word, rule, wide)), ", ");
        if !wide {
            let all = rules.iter().map(|(rule, file)| format!(", {}", args(*rule, file))).collect::<String>();
            let words = COMMON_ARGS.split(' ').chain(rules.iter().flat_map(|(_, file)| words(file)));
            self.line(&format!("local {common}{all} = unpack('<{}', ARGV[1])", format(words)));
            for (rule, file) in &rules {
                let names = [file.words("names"), COMMON_NAMES].join(" ");
                self.line(&format!("local {}", join(names.split(' ').map(|word| name(word, *rule, false)), ", ")));
            }
            return;
        }
        let mut at = COMMON_ARGS.split(' ').count();
        self.line(&format!("local {common} = unpack('<{}', ARGV[1])", "d".repeat(at)));
        self.line("local R = {}");
        for (rule, file) in &rules {
            self.line(&format!("{} = unpack('<{}', ARGV[1], {})", args(*rule, file), format(words(file)), at * 8 + 1));
            at += words(file).count();
        }
    }

    /// Adds these sections of every rule.
    fn each(&mut self, sections: &[&str]) {
        for (rule, file) in self.rules.clone() {
            for section in sections {
                self.section(file, section, rule);
            }
        }
    }

    fn section(&mut self, file: File, section: &str, rule: usize) {
        for (number, line) in file.section(section) {
            let key = if self.looped { "i".to_owned() } else { rule.to_string() };
            number_names(line, rule, &key, self.wide, &mut self.text);
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

fn name(word: &str, rule: usize, wide: bool) -> String {
    format!("{}{word}_{rule}", if wide { "R." } else { "" })
}

/// Copies a line, with the names that end in `_N` and the index `[N]` made those of one rule.
fn number_names(line: &str, rule: usize, key: &str, wide: bool, out: &mut String) {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut rest = line;
    while let Some(begin) = rest.find(is_name) {
        let (before, tail) = rest.split_at(begin);
        let (word, after) = tail.split_at(tail.find(|letter| !is_name(letter)).unwrap_or(tail.len()));
        out.push_str(before);
        // Writing into a string does not fail.
        let _ = match word.strip_suffix("_N") {
            Some(stem) => write!(out, "{}", name(stem, rule, wide)),
            None if word == "N" => write!(out, "{key}"),
            None => write!(out, "{word}"),
        };
        rest = after;
    }
    out.push_str(rest);
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
        for kinds in [&[0, 1, 2, 3, 4, 5, 6, 7][..], &[1; 40]] {
            let settling = [Operation::Take, Operation::Owe, Operation::Give];
            for operation in settling.into_iter().chain([Operation::Acquire, Operation::Leases]) {
                let text = Assembled::new(operation, kinds).text;
                assert!(!text.contains("_N") && !text.contains("[N]"), "{text}");
            }
        }
    }

    #[test]
    fn no_name_is_left_open_in_a_batch() {
        let text = Assembled::batch(&[0, 1, 2, 3, 4, 5, 7]).text;
        assert!(!text.contains("_N") && !text.contains("[N]") && text.contains("KEYS[i]"), "{text}");
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
