use super::{KeyBy, compose::Miss};

/// A parameter of the path by its name in the route: `tenant` of `/v1/{tenant}/items`, percent-decoded. There is no key where
/// no axum route with that parameter matched.
///
/// Callers choose it: let this rule come after what checks that the tenant is theirs, or pair it with one by
/// [`ip()`](super::ip).
pub fn path_param(name: &str) -> KeyBy {
    if name.is_empty() || name.contains(['/', '{', '}', '*']) {
        return KeyBy::wrong(format!(
            "{name:?} is not a path parameter's name; write it as in the route, without braces"
        ));
    }
    let name: Box<str> = name.into();
    KeyBy::writer(move |head, text| {
        #[cfg(feature = "axum")]
        if let Some(value) = matched::value(head, &name) {
            super::text::escape(&super::percent::decode(value.as_bytes()), text);
            return Ok(());
        }
        let _ = (head, &name, text);
        Err(Miss::Absent)
    })
}

/// axum keeps the parameters to itself, but says which route matched.
#[cfg(feature = "axum")]
mod matched {
    use axum::extract::{MatchedPath, OriginalUri};
    use http::request::Parts;

    pub(super) fn value<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
        let route = head.extensions.get::<MatchedPath>()?.as_str();
        // In a nested router the route is whole but the path is not; behind one that rewrites paths the original is another.
        let original = head.extensions.get::<OriginalUri>().map(|OriginalUri(uri)| uri);
        original.into_iter().chain([&head.uri]).find_map(|uri| find(route, uri.path(), name))
    }

    /// `None` too where the path is not one of the route.
    fn find<'a>(route: &str, path: &'a str, name: &str) -> Option<&'a str> {
        let mut rest = path;
        let mut found = None;
        for segment in route.split('/') {
            let end = rest.find('/').unwrap_or(rest.len());
            let (value, after) = rest.split_at(end);
            if let Some((before, parameter, behind)) = parameter(segment) {
                if let Some(catch_all) = parameter.strip_prefix('*') {
                    return if catch_all == name { rest.get(before..) } else { found };
                }
                if parameter == name {
                    found = Some(value.get(before..value.len().checked_sub(behind)?)?);
                }
            } else if segment.replace("{{", "{").replace("}}", "}") != value {
                return None;
            }
            rest = after.strip_prefix('/').unwrap_or_default();
        }
        found
    }

    /// The parameter of a segment, and how much of the path stands before and behind it. Doubled braces stand for themselves.
    fn parameter(segment: &str) -> Option<(usize, &str, usize)> {
        let mut from = 0;
        let mut doubled = 0;
        loop {
            let brace = from + segment.get(from..)?.find(['{', '}'])?;
            let rest = segment.get(brace..)?;
            if rest.starts_with("{{") || rest.starts_with("}}") {
                from = brace + 2;
                doubled += 1;
                continue;
            }
            let (name, behind) = rest.strip_prefix('{')?.split_once('}')?;
            let more = behind.matches("{{").count() + behind.matches("}}").count();
            return Some((brace - doubled, name, behind.len() - more));
        }
    }
}
