//! What the names in the parts of a script become in one that is put together.

/// The name of one rule's own; a field of a table where there are too many for local variables.
pub(super) fn name(word: &str, rule: usize, wide: bool) -> String {
    format!("{}{word}_{rule}", if wide { "R." } else { "" })
}

/// What the names of one rule become.
pub(super) struct Naming<'a> {
    pub(super) rule: usize,
    /// The index `[N]`.
    pub(super) key: &'a str,
    pub(super) wide: bool,
    /// Who spares nothing needs its cost.
    pub(super) spares: bool,
    pub(super) tenant: Option<usize>,
}

impl Naming<'_> {
    fn name(&self, word: &str) -> Option<String> {
        match (word.strip_suffix("_N"), word.strip_suffix("_M"), self.tenant) {
            (Some("need"), ..) if !self.spares => Some(name("cost", self.rule, self.wide)),
            (Some(stem), ..) => Some(name(stem, self.rule, self.wide)),
            (None, Some(stem), Some(tenant)) => Some(name(stem, tenant, self.wide)),
            _ => (word == "N").then(|| self.key.to_owned()),
        }
    }

    /// Copies a line, with the names that end in `_N` or `_M` and the index `[N]` made those of one rule.
    pub(super) fn copy(&self, line: &str, out: &mut String) {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let mut rest = line;
        while let Some(begin) = rest.find(is_name) {
            let (before, tail) = rest.split_at(begin);
            let (word, after) = tail.split_at(tail.find(|letter| !is_name(letter)).unwrap_or(tail.len()));
            out.push_str(before);
            match self.name(word) {
                Some(name) => out.push_str(&name),
                None => out.push_str(word),
            }
            rest = after;
        }
        out.push_str(rest);
    }
}
