//! Which rules apply to a path and a method, found without asking each of them.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use http::Method;
use smallvec::SmallVec;

use crate::policy::{Pattern, Segment};

/// The indices of the rules that apply.
pub(crate) type Places = SmallVec<[u16; 16]>;

/// The rules of a limiter by the paths and methods that they are for.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    nodes: Vec<Node>,
}

/// A place in the tree of path segments.
#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, usize, foldhash::fast::RandomState>,
    /// Where any segment leads.
    any: Option<usize>,
    /// For the path that ends here.
    here: Vec<Entry>,
    /// For this path and all below it.
    below: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    rule: u16,
    /// None: all.
    methods: Box<[Method]>,
}

impl Entry {
    /// `HEAD` is `GET` without the body, and routers treat it so: it would be a way around the rule.
    fn is_for(&self, method: &Method) -> bool {
        let asks = |own: &Method| own == method || method == Method::HEAD && own == Method::GET;
        self.methods.is_empty() || self.methods.iter().any(asks)
    }
}

/// Where paths begin.
const ROOT: usize = 0;

impl Paths {
    pub(super) fn new() -> Paths {
        Paths { nodes: vec![Node::default()] }
    }

    /// Adds a rule for these paths and methods; for all where there are none.
    pub(super) fn add(&mut self, rule: u16, patterns: &[Pattern], methods: &[Method]) {
        let entry = Entry { rule, methods: methods.into() };
        if patterns.is_empty() {
            self.at(ROOT, |node| node.below.push(entry));
            return;
        }
        for pattern in patterns {
            let end = pattern.segments.iter().fold(ROOT, |place, segment| self.step(place, segment));
            let entry = entry.clone();
            self.at(end, |node| if pattern.rest { node.below.push(entry) } else { node.here.push(entry) });
        }
    }

    fn at(&mut self, place: usize, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(place) {
            change(node);
        }
    }

    /// The place behind a segment, made if there is none.
    fn step(&mut self, place: usize, segment: &Segment) -> usize {
        let next = self.nodes.len();
        let Some(node) = self.nodes.get_mut(place) else { return place };
        let found = match segment {
            // Slashes that stand twice, or at the end.
            Segment::Literal(text) if text.is_empty() => return place,
            Segment::Literal(text) => *node.literals.entry(canonical(text).into()).or_insert(next),
            Segment::Any => *node.any.get_or_insert(next),
        };
        if found == next {
            self.nodes.push(Node::default());
        }
        found
    }

    /// The rules for a request, in their order.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Places {
        let mut found = Places::new();
        let path = canonical(path);
        let written = || path.split('/').filter(|segment| !segment.is_empty());
        self.collect(ROOT, method, written(), &mut found);
        if has_dots(&path) {
            // Some who route resolve dots, and others take them for names: it is both paths.
            self.collect(ROOT, method, resolved(written()).into_iter(), &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether a path is looked up as it is written and as it is resolved.
    pub(crate) fn are_two(&self, path: &str) -> bool {
        has_dots(path)
    }

    fn collect<'p>(
        &self,
        place: usize,
        method: &Method,
        mut segments: impl Iterator<Item = &'p str> + Clone,
        found: &mut Places,
    ) {
        let Some(node) = self.nodes.get(place) else { return };
        let rules = |entries: &[Entry]| -> Places {
            entries.iter().filter(|entry| entry.is_for(method)).map(|entry| entry.rule).collect()
        };
        found.extend(rules(&node.below));
        let Some(segment) = segments.next() else {
            found.extend(rules(&node.here));
            return;
        };
        if let Some(next) = node.literals.get(segment) {
            self.collect(*next, method, segments.clone(), found);
        }
        if let Some(next) = node.any {
            self.collect(next, method, segments, found);
        }
    }

    /// The most that the rules for any one request may weigh together, and of which method: no request weighs more.
    pub(super) fn heaviest(&self, weight: impl Fn(u16) -> usize) -> usize {
        let mut methods: Vec<Option<&Method>> = vec![None];
        let entries = self.nodes.iter().flat_map(|node| node.here.iter().chain(&node.below));
        for method in entries.flat_map(|entry| &entry.methods) {
            if !methods.contains(&Some(method)) {
                methods.push(Some(method));
            }
        }
        let counted = self.counted();
        methods.into_iter().map(|method| self.weight_of(method, &counted, &weight)).max().unwrap_or(0)
    }

    /// The entries of each place, without those of rules that hold for everything below a place on the way there: they count there.
    fn counted(&self) -> Vec<Counted<'_>> {
        let mut parents = vec![None; self.nodes.len()];
        let mut patterns: HashMap<u16, u32> = HashMap::new();
        let mut wide = HashSet::new();
        for (place, node) in self.nodes.iter().enumerate() {
            for child in node.literals.values().chain(&node.any) {
                if let Some(parent) = parents.get_mut(*child) {
                    *parent = Some(place);
                }
            }
            for entry in node.here.iter().chain(&node.below) {
                *patterns.entry(entry.rule).or_default() += 1;
            }
            wide.extend(node.below.iter().map(|entry| (place, entry.rule)));
        }
        let parent = |place: &usize| parents.get(*place).copied().flatten();
        let counts = |entry: &&Entry, from: Option<usize>| {
            patterns.get(&entry.rule) == Some(&1)
                || !std::iter::successors(from, parent).any(|place| wide.contains(&(place, entry.rule)))
        };
        let nodes = self.nodes.iter().enumerate();
        nodes
            .map(|(place, node)| Counted {
                here: node.here.iter().filter(|entry| counts(entry, Some(place))).collect(),
                below: node.below.iter().filter(|entry| counts(entry, parent(&place))).collect(),
            })
            .collect()
    }

    /// From the leaves up, since children come after their parents.
    fn weight_of(&self, method: Option<&Method>, counted: &[Counted<'_>], weight: &impl Fn(u16) -> usize) -> usize {
        let is_for = |entry: &&&Entry| match method {
            Some(method) => entry.is_for(method),
            None => entry.methods.is_empty(),
        };
        let sum = |entries: &[&Entry]| -> usize { entries.iter().filter(is_for).map(|entry| weight(entry.rule)).sum() };
        let mut weights = vec![0; self.nodes.len()];
        for (place, (node, counted)) in self.nodes.iter().zip(counted).enumerate().rev() {
            let of = |next: &usize| weights.get(*next).copied().unwrap_or(0);
            let any = node.any.as_ref().map_or(0, of);
            let on = node.literals.values().map(of).max().unwrap_or(0) + any;
            let own = sum(&counted.below) + on.max(sum(&counted.here));
            if let Some(weight) = weights.get_mut(place) {
                *weight = own;
            }
        }
        weights.first().copied().unwrap_or(0)
    }
}

/// The entries of a place that count there.
struct Counted<'a> {
    here: Vec<&'a Entry>,
    below: Vec<&'a Entry>,
}

/// Whether a path has segments of dots, which are resolved or not.
fn has_dots(path: &str) -> bool {
    let path = canonical(path);
    path.contains("/.") && path.split('/').any(|segment| matches!(segment, "." | ".."))
}

/// The segments with those of dots resolved.
fn resolved<'a>(written: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut segments: Vec<&str> = Vec::new();
    for segment in written {
        match segment {
            "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    segments
}

/// One spelling for all that are read as the same: what may stand in a path as it is is decoded, and everything else encoded in capitals.
/// Nearly every path is written so already.
fn canonical(path: &str) -> Cow<'_, str> {
    if path.bytes().all(|byte| byte.is_ascii() && byte != b'%') {
        return Cow::Borrowed(path);
    }
    let mut text = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, behind @ ..] = rest {
        let encoded = match rest {
            [b'%', high, low, ..] => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        match encoded {
            Some(byte) => {
                if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte) {
                    text.push(char::from(byte));
                } else {
                    push_encoded(&mut text, byte);
                }
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                if first.is_ascii() {
                    text.push(char::from(*first));
                } else {
                    push_encoded(&mut text, *first);
                }
                rest = behind;
            }
        }
    }
    Cow::Owned(text)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn push_encoded(text: &mut String, byte: u8) {
    text.push('%');
    text.extend(crate::key::hex(byte).map(|digit| char::from(digit).to_ascii_uppercase()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(rules: &[(&[&str], &[Method])]) -> Paths {
        let mut paths = Paths::new();
        for (rule, (patterns, methods)) in (0..).zip(rules) {
            let patterns: Vec<Pattern> = patterns.iter().filter_map(|pattern| Pattern::parse(pattern).ok()).collect();
            paths.add(rule, &patterns, methods);
        }
        paths
    }

    fn found(paths: &Paths, method: Method, path: &str) -> Vec<u16> {
        paths.find(&method, path).to_vec()
    }

    #[test]
    fn every_pattern_that_matches_counts() {
        let paths = paths(&[
            (&[], &[]),
            (&["/v1/charges"], &[Method::POST]),
            (&["/v1/{*rest}"], &[]),
            (&["/v1/{what}"], &[]),
            (&["/v1/users/{id}", "/v1/charges"], &[Method::GET]),
            (&["/"], &[]),
        ]);
        assert_eq!(found(&paths, Method::POST, "/v1/charges"), [0, 1, 2, 3]);
        assert_eq!(found(&paths, Method::GET, "/v1/charges"), [0, 2, 3, 4]);
        assert_eq!(found(&paths, Method::HEAD, "/v1/charges"), [0, 2, 3, 4]);
        assert_eq!(found(&paths, Method::GET, "/v1/users/7"), [0, 2, 4]);
        assert_eq!(found(&paths, Method::GET, "/v1/users/7/x"), [0, 2]);
        assert_eq!(found(&paths, Method::GET, "/v1"), [0, 2]);
        assert_eq!(found(&paths, Method::GET, "/"), [0, 5]);
        assert_eq!(found(&paths, Method::GET, "/v2"), [0]);
    }

    #[test]
    fn no_spelling_goes_around_a_rule() {
        let paths = self::paths(&[(&["/v1/charges"], &[])]);
        for path in [
            "/v1/charges",
            "/v1/charges/",
            "//v1//charges",
            "/v1/./charges",
            "/v1/x/../charges",
            "/v1/%63harges",
            "/%76%31/charges",
            "/v1/x/%2e%2E/charges",
            "/v1/%2e/charges",
            "/../v1/charges",
        ] {
            assert_eq!(found(&paths, Method::GET, path), [0], "{path}");
        }
        // Axum takes dots for names, and calls the handler of the path as it is written.
        for (pattern, path) in [
            ("/files/{*rest}", "/files/a/../../x"),
            ("/users/{id}", "/users/.."),
            ("/users/{id}", "/users/%2E"),
            ("/a/{x}/b", "/a/../b"),
            ("/v1/cards:void", "/v1/cards%3Avoid"),
            ("/me@work", "/me%40work"),
            ("/caf\u{e9}", "/caf%c3%a9"),
            ("/caf%C3%a9", "/caf\u{e9}"),
            ("/a%2fb", "/a%2Fb"),
        ] {
            assert_eq!(found(&self::paths(&[(&[pattern], &[])]), Method::GET, path), [0], "{pattern} {path}");
        }
        for path in ["/v1/Charges", "/v1/charges%2F", "/v1/charges%", "/v1/charges%zz", "/v1%2Fcharges", "/v1/chargesé"]
        {
            assert_eq!(found(&paths, Method::GET, path), [0u16; 0], "{path}");
        }
    }

    #[test]
    fn no_request_weighs_more_than_the_heaviest() {
        let paths = paths(&[
            (&[], &[]),
            (&["/a/{x}"], &[]),
            (&["/a/b"], &[Method::GET]),
            (&["/a/b"], &[Method::POST]),
            (&["/a/c"], &[Method::GET]),
            (&["/a/{x}/{*rest}"], &[]),
        ]);
        // Of `GET /a/b`: all but the third and fourth of the list.
        assert_eq!(found(&paths, Method::GET, "/a/b"), [0, 1, 2, 5]);
        assert_eq!(paths.heaviest(|_| 1), 4);
        assert_eq!(paths.heaviest(|rule| if rule == 3 { 5 } else { 1 }), 8);
    }

    #[test]
    fn a_rule_with_several_patterns_weighs_once() {
        let paths = paths(&[
            (&["/a", "/a/{*rest}"], &[]),
            (&["/a/{*rest}", "/a/b/c", "/a/b/{*rest}"], &[]),
            (&["/{*rest}", "/a/b"], &[Method::GET]),
        ]);
        assert_eq!(found(&paths, Method::GET, "/a/b/c"), [0, 1, 2]);
        assert_eq!((paths.heaviest(|_| 1), paths.heaviest(|rule| usize::from(rule) + 1)), (3, 6));
    }
}
