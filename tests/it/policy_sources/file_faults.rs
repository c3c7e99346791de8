//! Files that are gone, or of no use: the last good policy stays, and that is said once.

use std::{fs, time::Duration};

use sluicegate::{
    Limiter, MemoryStore, PolicyEvent,
    policy::{PolicyFile, PolicySource},
};

use super::{Follower, policy, text};
use crate::support::{folder::Folder, log::Log};

/// What is promised.
const WITHIN: Duration = Duration::from_secs(2);

async fn follow(path: &str) -> Follower {
    Follower::begin(Limiter::builder(MemoryStore::new()), PolicyFile::new(path)).await
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_deleted_changes_nothing_until_it_is_back() {
    let (log, _guard) = Log::begin();
    let folder = Folder::new();
    let path = folder.write("limits.toml", &text("10/hour"));
    let follower = follow(&path).await;
    fs::remove_file(&path).expect("removed");
    follower.refuses("limits.toml: SG030: cannot be read", WITHIN).await;
    assert!(follower.holds(&policy("10/hour")));
    // The same as before, and another.
    folder.write("limits.toml", &text("10/hour"));
    follower.reaches(&policy("10/hour"), WITHIN).await;
    folder.write("limits.toml", &text("20/hour"));
    follower.reaches(&policy("20/hour"), WITHIN).await;
    let refused = PolicyEvent::Refused { error: follower.told.refused().concat() };
    follower.tells(&[refused, PolicyEvent::Changed { version: 2 }]).await;
    assert_eq!(log.text().matches("a policy cannot be used").count(), 1, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_file_of_no_use_is_told_of_once_with_its_place() {
    let (log, _guard) = Log::begin();
    let folder = Folder::new();
    let path = folder.write("limits.toml", &text("10/hour"));
    let follower = follow(&path).await;
    let bad = text("10/fortnight");
    for _ in 0..3 {
        // Another time with the same content is nothing new.
        folder.write("limits.toml", &bad);
        follower.refuses("fortnight", WITHIN).await;
    }
    assert!(follower.holds(&policy("10/hour")));
    let refused = follower.told.refused();
    assert!(refused.len() == 1 && refused[0].contains("limits.toml:10:9: SG010"), "{refused:?}");
    // Another mistake is news.
    folder.write("limits.toml", "rules = 7");
    follower.refuses("rules", WITHIN).await;
    folder.write("limits.toml", &text("20/hour"));
    follower.reaches(&policy("20/hour"), WITHIN).await;
    assert_eq!(follower.told.refused().len(), 2, "{:?}", follower.told.all());
    assert_eq!(log.text().matches("a policy cannot be used").count(), 2, "{}", log.text());
}

#[tokio::test]
async fn what_cannot_be_loaded_is_named_with_its_reason() {
    let folder = Folder::new();
    let load = async |path: &str| PolicyFile::new(path).load().await.expect_err("of no use").to_string();
    let at = |name: &str| folder.0.join(name).to_str().expect("a path").to_owned();
    let absent = load(&at("absent.toml")).await;
    assert!(absent.contains("absent.toml: SG030: cannot be read: No such file"), "{absent}");
    let neither = load(&folder.write("limits.yaml", &text("10/hour"))).await;
    assert!(neither.contains("limits.yaml") && neither.contains(".toml or .json"), "{neither}");
    let bad = load(&folder.write("bad.toml", "rules = 7")).await;
    assert!(bad.contains("bad.toml:1:"), "{bad}");
    fs::write(at("bytes.toml"), b"name = \"\xff\"").expect("written");
    let bytes = load(&at("bytes.toml")).await;
    assert!(bytes.contains("bytes.toml") && bytes.contains("UTF-8"), "{bytes}");
    let long = at("long.toml");
    fs::File::create(&long).and_then(|file| file.set_len((64 << 20) + 1)).expect("a long file");
    assert!(load(&long).await.starts_with(&format!("{long}: SG030: is longer than 64 MiB")));
    fs::create_dir(at("folder.toml")).expect("a folder");
    assert!(load(&at("folder.toml")).await.contains("folder.toml: SG030: is not a file"));
    // Nobody ever writes into this one.
    let made = std::process::Command::new("mkfifo").arg(at("pipe.toml")).status();
    assert!(made.expect("mkfifo runs").success());
    assert!(load(&at("pipe.toml")).await.contains("pipe.toml: SG030: is not a file"));
}
