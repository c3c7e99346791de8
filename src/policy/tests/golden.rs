//! What errors look like. To write them anew after a change: `GOLDEN=write cargo test policy::tests::golden`, and read what changed.

use std::{collections::BTreeMap, fs, path::PathBuf};

use super::*;
use crate::policy::code::Code;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/policy/tests/golden")
}

/// The documents in the folder, by name, with those that the page of codes shows.
fn documents() -> BTreeMap<String, String> {
    let mut documents: BTreeMap<String, String> =
        super::page::examples().into_iter().map(|(code, example)| (format!("{code}.toml"), example)).collect();
    for entry in fs::read_dir(folder()).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if !name.ends_with(".txt") {
            documents.insert(name, fs::read_to_string(&path).expect("a document"));
        }
    }
    documents
}

#[test]
fn errors_are_for_people() {
    let write = std::env::var("GOLDEN").is_ok_and(|value| value == "write");
    let mut seen = String::new();
    let mut changed = Vec::new();
    for (name, text) in documents() {
        let told = match read(&name, &text) {
            Ok(_) => panic!("{name} is good"),
            Err(error) => error.to_string(),
        };
        seen.push_str(&told);
        let path = folder().join(format!("{}.txt", name.replace('.', "_")));
        if write {
            fs::write(&path, &told).expect("written");
        }
        if fs::read_to_string(&path).unwrap_or_default() != told {
            changed.push(format!("{}:\n{told}", path.display()));
        }
    }
    assert!(changed.is_empty(), "these differ from what is kept:\n{}", changed.join("\n"));
    for (code, _) in Code::ALL {
        // Of no document: of files, and of limiters.
        assert!(seen.contains(code) || ["SG030", "SG031"].contains(code), "no document is told {code}");
    }
}

#[test]
fn files_that_cannot_be_read_are_told() {
    for (name, message) in [
        ("nowhere/limits.toml", "nowhere/limits.toml: SG030: cannot be read: "),
        ("limits.yaml", "limits.yaml: SG030: is neither TOML nor JSON by its name\n"),
    ] {
        let told = Policy::from_file(name).expect_err(name).to_string();
        assert!(told.starts_with(message), "{told}");
    }
    let error = Policy::from_file(folder().join("many.toml")).expect_err("a bad one");
    assert!(error.source_name().ends_with("many.toml") && error.to_string().contains("many.toml:"));
    assert!(Policy::from_file(folder().join("../whole.toml")).is_ok());
}

#[test]
fn secrets_are_not_shown() {
    let (_, text) = documents().into_iter().find(|(name, _)| name == "SG029.toml").expect("a document");
    let text = format!("{text}tier = \"nowhere\"\n");
    let error = read("x.toml", &text).expect_err("a bad one");
    assert!(text.contains("my-secret-key") && !format!("{error} {error:?}").contains("my-secret-key"));
}

#[test]
fn long_lines_are_cut() {
    let rules: Vec<String> = (0..100)
        .map(|place| {
            format!(
                r#"{{"name":"r{place}","algorithm":"gcra","quota":"{}/s","key":"ip","paths":["/{place}"]}}"#,
                u64::from(place != 50)
            )
        })
        .collect();
    let told = read("x.json", &format!("{{\"rules\":[{}]}}", rules.join(","))).expect_err("a bad one").to_string();
    assert!(told.contains("x.json:1:") && told.contains("\"0/s\"") && told.contains("^^^^^\n"), "{told}");
    assert!(told.lines().all(|line| line.chars().count() < 160), "{told}");
}

#[test]
fn many_problems_are_counted() {
    let rules: String = (0..300).map(|place| format!("[[rules]]\nname = \"r{place}\"\nalgorithm = \"x\"\n")).collect();
    let error = read("x.toml", &rules).expect_err("a bad one");
    assert_eq!(error.iter().count(), 100);
    assert!(error.to_string().ends_with("\nand 200 more\n"));
}
