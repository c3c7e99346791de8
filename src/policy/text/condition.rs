use std::sync::Arc;

use http::{HeaderName, HeaderValue, request::Parts};

use super::Wrong;

/// Whether something is so of a request.
pub(in crate::policy) type Condition = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

/// `header:NAME=VALUE`, or `None` where the text is a name.
pub(in crate::policy) fn condition(text: &str) -> Option<Result<Condition, Wrong>> {
    let (kind, rest) = text.split_once(':')?;
    let read = || {
        let help = "write a name that code registers, or \"header:NAME=VALUE\"";
        let (name, value) = match (kind, rest.split_once('=')) {
            ("header", Some(pair)) => pair,
            _ => return Err(Wrong::new(format!("{text:?} is no condition"), help)),
        };
        let name = HeaderName::try_from(name)
            .map_err(|_| Wrong::new(format!("{name:?} is not a header name"), "use letters, digits and hyphens"))?;
        let value = HeaderValue::from_str(value).map_err(|_| {
            Wrong::new(format!("{value:?} cannot be the value of a header"), "use printable characters")
        })?;
        let holds: Condition = Arc::new(move |head| {
            // Of two lines nobody can say which counts.
            let mut lines = head.headers.get_all(&name).iter();
            lines.next() == Some(&value) && lines.next().is_none()
        });
        Ok(holds)
    };
    Some(read())
}
