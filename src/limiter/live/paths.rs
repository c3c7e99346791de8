//! Which rules apply to a path and a method, found without asking each of them.

use std::{borrow::Cow, collections::HashMap};

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
            Segment::Literal(text) => *node.literals.entry(decode(text).into()).or_insert(next),
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
        let path = plain(path);
        self.collect(ROOT, method, path.split('/').filter(|segment| !segment.is_empty()), &mut found);
        found.sort_unstable();
        found.dedup();
        found
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
        methods.into_iter().map(|method| self.weight_of(method, &weight)).max().unwrap_or(0)
    }

    /// From the leaves up, since children come after their parents.
    fn weight_of(&self, method: Option<&Method>, weight: &impl Fn(u16) -> usize) -> usize {
        let is_for = |entry: &&Entry| match method {
            Some(method) => entry.is_for(method),
            None => entry.methods.is_empty(),
        };
        let sum = |entries: &[Entry]| -> usize { entries.iter().filter(is_for).map(|entry| weight(entry.rule)).sum() };
        let mut weights = vec![0; self.nodes.len()];
        for (place, node) in self.nodes.iter().enumerate().rev() {
            let of = |next: &usize| weights.get(*next).copied().unwrap_or(0);
            let any = node.any.as_ref().map_or(0, of);
            let on = node.literals.values().map(of).max().unwrap_or(0) + any;
            let own = sum(&node.below) + on.max(sum(&node.here));
            if let Some(weight) = weights.get_mut(place) {
                *weight = own;
            }
        }
        weights.first().copied().unwrap_or(0)
    }
}

/// The path as routers come to see it: letters that need no encoding decoded, and dots resolved, so that no spelling of a path
/// goes around its rules. Nearly every path is plain already.
fn plain(path: &str) -> Cow<'_, str> {
    if !path.contains('%') && !path.contains("/.") {
        return Cow::Borrowed(path);
    }
    let decoded = decode(path);
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    Cow::Owned(segments.join("/"))
}

/// Decodes what stands for a letter, a digit, or one of `-._~`.
fn decode(path: &str) -> String {
    let mut pieces = path.split('%');
    let mut text = String::from(pieces.next().unwrap_or_default());
    for piece in pieces {
        let byte = piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(byte)) {
            Some(byte) => {
                text.push(char::from(byte));
                text.push_str(piece.get(2..).unwrap_or_default());
            }
            None => {
                text.push('%');
                text.push_str(piece);
            }
        }
    }
    text
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
        let paths = paths(&[(&["/v1/charges"], &[])]);
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
}
