//! The directions of the house: what may know of what. Deliberate absences cannot be read from the code, so they are tested.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no {ending} in {folder}");
    found
}

/// Code without its tests and comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a file");
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn assert_absent(folder: &str, words: &[&str], except: &[&str]) {
    for path in files(folder, ".rs") {
        let name = path.to_string_lossy().into_owned();
        if except.iter().any(|part| name.contains(part)) {
            continue;
        }
        let code = code(&path);
        for word in words {
            assert!(!code.contains(word), "{name} knows of {word}");
        }
    }
}

#[test]
fn algorithms_know_nothing_but_numbers() {
    assert_absent(
        "src/algorithm",
        &["tokio", "redis", "http", "tower", "SystemTime", "Instant", "crate::store", "crate::key"],
        &[],
    );
}

#[test]
fn redis_is_known_in_one_folder() {
    assert_absent(
        "src",
        &["redis::", "deadpool"],
        &["src/store/redis/", "src/store/mod.rs", "src/lib.rs", "src/policy/sources/mod.rs"],
    );
}

#[test]
fn tower_is_known_at_the_edge_only() {
    assert_absent("src", &["tower::"], &["src/layer.rs", "src/service.rs", "src/future.rs", "src/bodies/"]);
}

#[test]
fn stores_see_no_requests_and_the_limiter_no_responses() {
    assert_absent("src/store", &["http::", "Parts}"], &["src/store/redis/wire.rs"]);
    assert_absent("src/limiter", &["Response", "crate::response", "crate::body"], &[]);
}

#[test]
fn files_stay_small() {
    for path in files("src", ".rs").into_iter().chain(files("lua", ".lua")).chain(files("tests", ".rs")) {
        let lines = fs::read_to_string(&path).expect("a file").lines().count();
        assert!(lines <= 500, "{} has {lines} lines", path.display());
    }
}

/// Each of these was seen to go wrong somewhere.
#[test]
fn lua_keeps_its_rules() {
    for path in files("lua", ".lua") {
        let text = fs::read_to_string(&path).expect("a file");
        let name = path.display();
        assert!(text.starts_with("--[["), "{name} has no header block");
        let code: String = text
            .split_once("]]")
            .expect("the block's end")
            .1
            .lines()
            .map(|line| line.split("--").next().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n");
        assert!(!code.contains("tostring") && !code.contains(".. "), "{name} makes text of numbers");
        assert!(!code.contains("math.random"), "{name} draws a predictable number");
        assert!(!code.contains("KEYS[1]"), "{name} names a rule's key by number");
    }
}
