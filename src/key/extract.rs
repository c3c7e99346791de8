//! Ready-made extractors.

use std::fmt::Debug;

use http::{HeaderName, HeaderValue, header};

use super::{Found, KeyBy, compose::Miss, credential::only, hash::Hash, text::escape};

/// The value of a header, as bytes. A request with two of it is refused with 400, since nobody can say which of them counts.
/// `Authorization`, `Proxy-Authorization`, `Cookie` and `X-Api-Key`, and values marked as sensitive, are hashed: the store does
/// not see them. For secrets in other headers there is [`api_key()`](super::api_key), for one cookie
/// [`cookie()`](super::cookie).
pub fn header<N>(name: N) -> KeyBy
where
    N: TryInto<HeaderName> + Debug + Clone,
{
    match name.clone().try_into() {
        Ok(name) => {
            let secret = [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE].contains(&name)
                || name == "x-api-key";
            KeyBy::writer(move |head, text| {
                // HTTP/2 may split cookies into lines.
                if name == header::COOKIE {
                    let lines: Vec<&[u8]> = head.headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
                    let none = lines.is_empty();
                    Hash::default().write(&lines.join(&b"; "[..]), text);
                    return if none { Err(Miss::Absent) } else { Ok(()) };
                }
                let value = only(&head.headers, &name)?;
                if secret || value.is_sensitive() {
                    Hash::default().write(value.as_bytes(), text);
                } else {
                    escape(value.as_bytes(), text);
                }
                Ok(())
            })
        }
        Err(_) => KeyBy::wrong(no_header_name(&name)),
    }
}

pub(super) fn no_header_name(name: &impl Debug) -> String {
    format!("{name:?} is not a header name; use letters, digits and hyphens")
}

/// The route as the router knows it, `/users/{id}` and not `/users/7`. There is none where no axum route matched.
pub fn route() -> KeyBy {
    KeyBy::writer(|head, text| {
        #[cfg(feature = "axum")]
        if let Some(path) = head.extensions.get::<axum::extract::MatchedPath>() {
            escape(path.as_str().as_bytes(), text);
            return Ok(());
        }
        let _ = (head, text);
        Err(Miss::Absent)
    })
}

/// The path as the client sent it, without its query. Callers choose it, so it may take any number of values: prefer
/// [`route()`].
pub fn path() -> KeyBy {
    KeyBy::writer(|head, text| {
        escape(head.uri.path().as_bytes(), text);
        Ok(())
    })
}

/// The method, as it was sent.
pub fn method() -> KeyBy {
    KeyBy::writer(|head, text| {
        escape(head.method.as_str().as_bytes(), text);
        Ok(())
    })
}

/// One key for every request.
pub fn global() -> KeyBy {
    KeyBy::new(|_| "all")
}

/// No key in HTTP requests: the rule applies only where [`Limiter::acquire`](crate::Limiter::acquire) names a key for it.
pub fn given() -> KeyBy {
    KeyBy::new(|_| Found::Absent)
}
