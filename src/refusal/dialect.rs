//! Which gRPC a request speaks, by its content type.

use http::{HeaderValue, Method, header, request::Parts};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const WEB: HeaderValue = HeaderValue::from_static("application/grpc-web");
const WEB_TEXT: HeaderValue = HeaderValue::from_static("application/grpc-web-text");
/// A content type is the caller's to choose; a longer one than any that is in use is not sent back.
const LONGEST_ECHO: usize = 64;

/// How a call expects its answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Dialect<'a> {
    Grpc,
    Web(&'a HeaderValue),
    WebText(&'a HeaderValue),
}

impl<'a> Dialect<'a> {
    /// `None`: it is no gRPC call.
    pub(super) fn of(head: &'a Parts) -> Option<Dialect<'a>> {
        if head.method != Method::POST {
            return None;
        }
        let value = head.headers.get(header::CONTENT_TYPE)?;
        let rest = after(value.as_bytes(), b"application/grpc")?;
        if is_whole(rest) {
            return Some(Dialect::Grpc);
        }
        let rest = after(rest, b"-web")?;
        if is_whole(rest) {
            return Some(Dialect::Web(value));
        }
        is_whole(after(rest, b"-text")?).then_some(Dialect::WebText(value))
    }

    /// That of the response.
    pub(super) fn content_type(self) -> HeaderValue {
        match self {
            Dialect::Grpc => GRPC,
            Dialect::Web(value) | Dialect::WebText(value) if value.len() <= LONGEST_ECHO => value.clone(),
            Dialect::Web(_) => WEB,
            Dialect::WebText(_) => WEB_TEXT,
        }
    }
}

fn after<'a>(text: &'a [u8], start: &[u8]) -> Option<&'a [u8]> {
    let (first, rest) = text.split_at_checked(start.len())?;
    first.eq_ignore_ascii_case(start).then_some(rest)
}

/// Whether a media type ends here: what follows is a format or a parameter.
fn is_whole(rest: &[u8]) -> bool {
    matches!(rest.first(), None | Some(b'+' | b';'))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::Dialect;

    fn dialect(content_type: &str) -> Option<String> {
        dialect_of("POST", content_type)
    }

    fn dialect_of(method: &str, content_type: &str) -> Option<String> {
        let request = Request::builder().method(method).header("content-type", content_type);
        let request = request.body(()).expect("a request");
        let (head, ()) = request.into_parts();
        Dialect::of(&head).map(|dialect| dialect.content_type().to_str().expect("text").to_owned())
    }

    #[test]
    fn calls_are_told_by_their_content_type() {
        for (sent, answered) in [
            ("application/grpc", "application/grpc"),
            ("application/grpc+proto", "application/grpc"),
            ("Application/GRPC;charset=utf-8", "application/grpc"),
            ("application/grpc-web", "application/grpc-web"),
            ("application/grpc-web+proto", "application/grpc-web+proto"),
            ("application/grpc-web-text", "application/grpc-web-text"),
            ("application/GRPC-WEB-TEXT+proto", "application/GRPC-WEB-TEXT+proto"),
        ] {
            assert_eq!(dialect(sent).as_deref(), Some(answered), "{sent}");
        }
        for other in [
            "",
            "application/grp",
            "application/grpcs",
            "application/grpc-webs",
            "application/grpc-web-texts",
            "application/grpc-",
            "application/json",
            "text/plain; application/grpc",
            " application/grpc",
        ] {
            assert_eq!(dialect(other), None, "{other}");
        }
        assert_eq!(dialect_of("GET", "application/grpc"), None, "every call is a POST");
    }

    #[test]
    fn a_long_content_type_is_not_sent_back() {
        let long = "x".repeat(65_536);
        assert_eq!(dialect(&format!("application/grpc-web;{long}")).as_deref(), Some("application/grpc-web"));
        assert_eq!(dialect(&format!("application/grpc-web-text+{long}")).as_deref(), Some("application/grpc-web-text"));
        assert_eq!(dialect(&format!("application/grpc+{long}")).as_deref(), Some("application/grpc"));
    }
}
