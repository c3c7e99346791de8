use std::fmt;

use super::Wrong;

/// Which paths a rule is about, in axum's syntax.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    /// What stands between the slashes; the path `/` has one segment, which is empty.
    pub(crate) segments: Vec<Segment>,
    /// Whether anything may follow, or nothing.
    pub(crate) rest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Segment {
    Literal(Box<str>),
    /// One segment, whatever it is.
    Any,
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Pattern, Wrong> {
        let Some(path) = text.strip_prefix('/') else {
            return Err(Wrong::new(
                format!("{text:?} does not begin with a slash"),
                "write a path, as \"/v1/users/{id}\"",
            ));
        };
        if path.contains(['?', '#']) {
            return Err(Wrong::new(
                format!("{text:?} is more than a path"),
                "leave out the query: rules look at paths only",
            ));
        }
        if path.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            return Err(Wrong::new(format!("{text:?} has a space in it"), "write it as clients send it, as %20"));
        }
        let mut segments = Vec::new();
        let mut rest = false;
        for part in path.split('/') {
            if rest {
                let help = "write {*rest} at the end, where it stands for everything below; {id} is one segment";
                return Err(Wrong::new(format!("something follows {{*..}} in {text:?}"), help));
            }
            match segment(part)? {
                Part::One(segment) => segments.push(segment),
                Part::Rest => rest = true,
            }
        }
        Ok(Pattern { segments, rest })
    }

    /// Whether a request's path is one of these. What an index of patterns must agree with.
    #[cfg(test)]
    pub(crate) fn matches(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let mut parts = path.split('/');
        for segment in &self.segments {
            let Some(part) = parts.next() else { return false };
            match segment {
                Segment::Literal(literal) if **literal != *part => return false,
                _ => {}
            }
        }
        // `/{*rest}` has no segments, and every path has one.
        self.rest || parts.next().is_none()
    }
}

enum Part {
    One(Segment),
    Rest,
}

fn segment(part: &str) -> Result<Part, Wrong> {
    let teach =
        "{id} stands for one segment, {*rest} at the end for everything below; doubled braces stand for themselves";
    let inner = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')).filter(|_| !part.starts_with("{{"));
    if let Some(name) = inner {
        let (name, is_rest) = name.strip_prefix('*').map_or((name, false), |name| (name, true));
        if name.is_empty() || name.contains(['{', '}', '*', ':']) {
            return Err(Wrong::new(format!("{part:?} has no name that can be"), teach));
        }
        return Ok(if is_rest { Part::Rest } else { Part::One(Segment::Any) });
    }
    if part.starts_with(':') {
        return Err(Wrong::new(format!("{part:?} is an older way to write a parameter"), teach));
    }
    if part.contains('*') {
        return Err(Wrong::new(format!("{part:?} stands for nothing: there is no `*` alone"), teach));
    }
    if !part.contains(['{', '}']) {
        return Ok(Part::One(Segment::Literal(part.into())));
    }
    let literal = part.replace("{{", "\u{1}").replace("}}", "\u{2}");
    if literal.contains(['{', '}']) {
        return Err(Wrong::new(format!("{part:?} is only in part a parameter"), teach));
    }
    Ok(Part::One(Segment::Literal(literal.replace('\u{1}', "{").replace('\u{2}', "}").into())))
}

/// As it was written, but for the names of parameters.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => write!(f, "/{}", text.replace('{', "{{").replace('}', "}}"))?,
                Segment::Any => f.write_str("/{_}")?,
            }
        }
        f.write_str(if self.rest { "/{*_}" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_and_match() {
        for (text, good, bad) in [
            ("/", &["/"][..], &["/v1", "//", ""][..]),
            ("/v1/charges", &["/v1/charges"], &["/v1/charges/", "/v1", "/v1/charges/7", "/V1/charges"]),
            ("/v1/users/{id}", &["/v1/users/7", "/v1/users/"], &["/v1/users", "/v1/users/7/x"]),
            ("/v1/{*rest}", &["/v1", "/v1/", "/v1/a", "/v1/a/b/"], &["/", "/v2", "/v11"]),
            ("/{*rest}", &["/", "/a", "/a/b"], &[""]),
            ("/{a}/x/{b}", &["/1/x/2"], &["/1/y/2"]),
            ("/a{{b}}", &["/a{b}"], &["/ab"]),
        ] {
            let pattern = Pattern::parse(text).expect(text);
            assert!(good.iter().all(|path| pattern.matches(path)), "{text}");
            assert!(!bad.iter().any(|path| pattern.matches(path)), "{text}");
            assert_eq!(Pattern::parse(&pattern.to_string()), Ok(pattern), "{text}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        for (text, message) in [
            ("v1", "does not begin with a slash"),
            ("", "does not begin with a slash"),
            ("/v1/*", "there is no `*` alone"),
            ("/v1/*/x", "there is no `*` alone"),
            ("/v1/:id", "an older way"),
            ("/{*rest}/x", "something follows"),
            ("/{id}.json", "only in part"),
            ("/x{id}", "only in part"),
            ("/{}", "no name"),
            ("/{*}", "no name"),
            ("/{", "only in part"),
            ("/a?b=c", "more than a path"),
            ("/a b", "has a space"),
        ] {
            let wrong = Pattern::parse(text).expect_err(text);
            assert!(wrong.message.contains(message), "{text}: {}", wrong.message);
        }
    }
}
