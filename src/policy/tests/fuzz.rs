//! No input makes it panic, and every error has a place in the document.

use proptest::prelude::*;

use super::*;

fn survives(text: &str) {
    for name in ["x.toml", "x.json"] {
        let Err(error) = read(name, text) else { continue };
        assert!(error.iter().count() > 0);
        let lines = text.lines().count() + 1;
        for problem in error.iter() {
            assert!((1..=lines).contains(&problem.line()), "{} of {lines}: {error}", problem.line());
            assert!(problem.column() >= 1 && !problem.message().is_empty());
        }
        assert!(error.to_string().contains("SG"));
    }
}

fn whole_json() -> String {
    serde_json::to_string_pretty(&whole()).expect("JSON")
}

/// What stands in documents, and what does not.
const TOKENS: [&str; 34] = [
    "\"",
    "'",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "=",
    ",",
    ".",
    ":",
    "\n",
    "\0",
    "\u{feff}",
    "é",
    "😀",
    "-1",
    "0",
    "1e999",
    "nan",
    "inf",
    "99999999999999999999",
    "-9223372036854775808",
    "18446744073709551615",
    "true",
    "null",
    "\"unlimited\"",
    "\"0/s\"",
    "\\u12",
    "\\ud83d",
    "1979-05-27",
    "#",
    "[rules]",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text(text in any::<String>()) {
        survives(&text);
    }

    #[test]
    fn random_tokens(tokens in prop::collection::vec(prop::sample::select(&TOKENS[..]), 0..40)) {
        survives(&tokens.concat());
    }

    #[test]
    fn mutated_documents(json: bool, changes in prop::collection::vec((any::<prop::sample::Index>(), 0..6usize, prop::sample::select(&TOKENS[..])), 1..4)) {
        let mut letters: Vec<char> = if json { whole_json() } else { WHOLE.to_owned() }.chars().collect();
        for (at, removed, put) in changes {
            let at = at.index(letters.len());
            let end = (at + removed).min(letters.len());
            letters.splice(at..end, put.chars());
        }
        survives(&letters.into_iter().collect::<String>());
    }

    #[test]
    fn swapped_values(from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        let lines: Vec<&str> = WHOLE.lines().collect();
        let (from, to) = (from.index(lines.len()), to.index(lines.len()));
        // The value of one line under the name of another.
        let value = lines[from].split_once(" = ").map_or("", |(_, value)| value);
        let line = lines[to].split_once(" = ").map_or(String::new(), |(name, _)| format!("{name} = {value}"));
        let text: Vec<&str> = lines.iter().enumerate().map(|(place, text)| if place == to { line.as_str() } else { text }).collect();
        survives(&text.join("\n"));
    }
}

#[test]
fn deep_documents_are_refused() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("{a = ", "}")] {
        for depth in [10, 63, 64, 65, 79, 80, 81, 1_000, 100_000] {
            let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            survives(&text);
            survives(&format!("rules = {text}"));
            survives(&open.repeat(depth));
        }
    }
    survives(&format!("[{}]", vec!["a"; 100_000].join(".")));
    survives(&format!("{} = 1", vec!["a"; 100_000].join(".")));
    // As deep as dots and braces go together.
    let open = format!("{{{} = ", vec!["a"; 80].join("."));
    survives(&format!("rules = {}1{}", open.repeat(80), "}".repeat(80)));
}

#[test]
fn large_numbers_are_out_of_range() {
    for field in ["burst", "max_new_keys", "roll_out", "cost", "limit", "shadow"] {
        for value in
            ["18446744073709551615", "18446744073709551616", "-1", "1e400", "0x8000000000000000", "nan", "-inf"]
        {
            let rule = format!(
                "[[rules]]\nname = \"r\"\nalgorithm = \"gcra\"\nquota = \"5/s\"\nkey = \"ip\"\n{field} = {value}\n"
            );
            survives(&rule);
            assert!(read("x.toml", &rule).is_err(), "{field} = {value}");
        }
    }
}
