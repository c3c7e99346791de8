//! Keys from secrets: found as applications find them, and seen by nobody.

use axum::{Router, routing::get};
use http::{HeaderName, HeaderValue, Request, StatusCode, request::Parts};
use proptest::prelude::*;
use redis::AsyncCommands;
use sluicegate::{
    ManualClock, Quota, RateLimitLayer, Rule,
    key::{self, Credential, Found, Key, KeyBy},
};

use crate::support::{
    app::ask,
    log::Log,
    server::VERSIONS,
    stores::{BEGIN, Backend},
};

fn head(lines: &[(&str, &[u8])]) -> Parts {
    let mut request = Request::new(());
    for (name, line) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        request.headers_mut().append(name, HeaderValue::from_bytes(line).expect("a value"));
    }
    request.into_parts().0
}

fn found(key: impl Into<KeyBy>, lines: &[(&str, &[u8])]) -> Found {
    key.into().find_now(&head(lines)).expect("it need not wait")
}

fn secret(secret: &[u8]) -> Found {
    Found::Key(Key::secret(secret))
}

const BAD_REQUEST: Found = Found::Refuse(StatusCode::BAD_REQUEST);

#[test]
fn a_bearer_token_is_found_as_applications_find_it() {
    for (line, expected) in [
        (&b"Bearer abc"[..], secret(b"abc")),
        (b"bEARER abc", secret(b"abc")),
        (b"bearer \t abc \t", secret(b"abc")),
        // Tokens are as they are written.
        (b"Bearer ABC", secret(b"ABC")),
        (b"Bearer \xff\xfe", secret(b"\xff\xfe")),
        (b"Bearer", Found::Absent),
        (b"Bearer ", Found::Absent),
        (b"Bearerabc", Found::Absent),
        (b"Basic abc", Found::Absent),
        (b"abc", Found::Absent),
        (b"", Found::Absent),
    ] {
        assert_eq!(found(key::bearer(), &[("authorization", line)]), expected, "{line:?}");
    }
    assert_eq!(found(key::bearer(), &[]), Found::Absent);
    // Which one does the application believe?
    let twice: [(&str, &[u8]); 2] = [("authorization", b"Bearer abc"), ("authorization", b"Bearer def")];
    assert_eq!(found(key::bearer(), &twice), BAD_REQUEST);
    assert_eq!(found(key::bearer().or(key::global()), &twice), BAD_REQUEST);
}

#[test]
fn an_api_key_stands_once() {
    let of = |lines: &[(&str, &[u8])]| found(key::api_key("X-Key"), lines);
    assert_eq!(of(&[("x-key", b" abc\t")]), secret(b"abc"));
    assert_eq!(of(&[("x-key", b"")]), Found::Absent);
    assert_eq!(of(&[]), Found::Absent);
    assert_eq!(of(&[("x-key", b"abc"), ("x-key", b"abc")]), BAD_REQUEST);
    let long = vec![b'k'; 64 * 1024];
    assert_eq!(of(&[("x-key", &long)]), secret(&long));
    let Found::Key(plain) = found(key::header("x-key"), &[("x-key", &long)]) else { panic!("no key") };
    assert_eq!(plain.as_bytes().len(), 33);
}

#[test]
fn a_cookie_is_found_among_others() {
    for (lines, expected) in [
        (&["session=abc"][..], secret(b"abc")),
        (&["a=1; session=abc; b=2"], secret(b"abc")),
        (&["a=1;session=abc;b=2"], secret(b"abc")),
        (&["a=1", "session=abc"], secret(b"abc")),
        (&["session=\"abc\""], secret(b"abc")),
        (&["session=a%62%63"], secret(b"abc")),
        (&["session=a=b"], secret(b"a=b")),
        (&["session=%zz%4"], secret(b"%zz%4")),
        (&["session=old; session=abc"], secret(b"abc")),
        (&["session=old", "session=abc"], secret(b"abc")),
        (&["Session=abc"], Found::Absent),
        (&["xsession=abc"], Found::Absent),
        (&["session"], Found::Absent),
        (&["session="], Found::Absent),
        (&["session=\"\""], Found::Absent),
        (&["a=session=abc"], Found::Absent),
        (&[""], Found::Absent),
        (&[], Found::Absent),
    ] {
        let lines: Vec<_> = lines.iter().map(|line| ("cookie", line.as_bytes())).collect();
        assert_eq!(found(key::cookie("session"), &lines), expected, "{lines:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_any_extractor_panic(bytes in prop::collection::vec(0x20..=0xff_u8, 0..80)) {
        let line: Vec<u8> = bytes.into_iter().filter(|byte| *byte != 0x7f).collect();
        let cookie = [b"s=", &line[..]].concat();
        found(key::bearer(), &[("authorization", &line)]);
        found(key::api_key("authorization"), &[("authorization", &line)]);
        found(key::cookie("s"), &[("cookie", &line), ("cookie", &cookie)]);
    }
}

/// The vectors of RFC 4231 and FIPS 180, cut to their first half.
#[test]
fn digests_are_what_others_compute() {
    assert_eq!(Key::secret(b"abc").as_bytes(), b"#ba7816bf8f01cfea414140de5dae2223");
    assert_eq!(Key::keyed(&[0x0b; 20], b"Hi There").as_bytes(), b"#b0344c61d8db38535ca8afceaf0bf12b");
    let longer_than_a_block = [0xaa; 131];
    let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
    assert_eq!(Key::keyed(&longer_than_a_block, text).as_bytes(), b"#60e431591ee0b67f0d8a26aacbf5b77f");
}

#[test]
fn a_key_for_hmac_changes_every_count() {
    let lines: [(&str, &[u8]); 3] =
        [("authorization", b"Bearer abc"), ("x-api-key", b"abc"), ("cookie", b"session=abc")];
    let hmac_key = [7; 32];
    for credential in [key::bearer(), key::api_key("x-api-key"), key::cookie("session")] {
        assert_eq!(found(credential.clone(), &lines), secret(b"abc"));
        assert_eq!(found(credential.clone().keyed(hmac_key), &lines), Found::Key(Key::keyed(&hmac_key, b"abc")));
        assert_ne!(found(credential.clone().keyed([8; 32]), &lines), Found::Key(Key::keyed(&hmac_key, b"abc")));
    }
}

#[test]
fn what_cannot_be_is_said_when_the_limiter_is_built() {
    let check = |credential: Credential| Rule::gcra("r", Quota::per_second(1)).key(credential).check();
    for (credential, remedy) in [
        (key::api_key("no spaces"), "is not a header name"),
        (key::api_key(""), "is not a header name"),
        (key::cookie("a b"), "is not a cookie's name"),
        (key::cookie("a=b"), "is not a cookie's name"),
        (key::cookie(""), "is not a cookie's name"),
        (key::bearer().keyed("hunter2"), "16 random bytes or more"),
    ] {
        let error = check(credential).expect_err(remedy);
        assert_eq!((error.rule_name(), error.field()), (Some("r"), "key"));
        assert!(error.to_string().contains(remedy) && !error.to_string().contains("hunter2"), "{error}");
    }
    assert!(check(key::bearer().keyed("sixteen bytes ok")).is_ok());
}

const SECRET: &str = "hunter2hunter2hunter2";

#[tokio::test]
async fn a_secret_is_in_no_key_of_the_store_nor_in_logs() {
    let (log, _guard) = Log::begin();
    for version in VERSIONS {
        let backend = Backend::redis(version);
        let quota = Quota::per_hour(5);
        let rules = [
            Rule::gcra("bearer", quota).key(key::bearer()),
            Rule::gcra("keyed", quota).key(key::bearer().keyed(SECRET)),
            Rule::gcra("api", quota).key(key::api_key("x-secret").and(key::route())),
            Rule::gcra("cookie", quota).key(key::cookie("session").or(key::global())),
            Rule::gcra("header", quota).key(key::header("authorization")),
            Rule::gcra("cookies", quota).key(key::header("cookie")),
            Rule::gcra("closure", quota)
                .key_by(|req| req.headers.get("x-secret").map(|value| Key::secret(value.as_bytes()))),
        ];
        let shown = format!("{rules:?} {:?}", key::bearer().keyed(SECRET));
        let number = rules.len();
        let limiter = backend.limiter(&ManualClock::new(BEGIN), rules);
        let shown = format!("{shown} {limiter:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        let app = Router::new().route("/", get(|| async {})).layer(RateLimitLayer::new(limiter));
        let request = Request::builder()
            .uri("/")
            .header("authorization", format!("Bearer {SECRET}"))
            .header("x-secret", SECRET)
            .header("cookie", format!("session={SECRET}"));
        let response = ask(&app, request).await;
        assert_eq!(response.status(), 200);
        assert!(!format!("{response:?}").contains("hunter2"));
        let mut connection = version.shared().connection().await;
        let keys: Vec<String> = connection.keys("*").await.expect("names");
        assert!(keys.iter().all(|key| !key.contains("hunter2")), "{keys:?}");
        assert_eq!(keys.iter().filter(|key| key.starts_with(&*backend.namespace)).count(), number);
    }
    assert!(!log.text().contains("hunter2"));
}
