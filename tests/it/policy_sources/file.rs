//! Files that change, in every way that files do. Time is paused but for what files take.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::Path,
    time::Duration,
};

use sluicegate::{
    Limiter, MemoryStore, PolicyEvent,
    policy::{Policy, PolicyFile, PolicySource},
};

use super::{Follower, policy, text};
use crate::support::folder::Folder;

/// What is promised.
const WITHIN: Duration = Duration::from_secs(2);

async fn follow(path: impl AsRef<Path>) -> Follower {
    Follower::begin(Limiter::builder(MemoryStore::new()), PolicyFile::new(path.as_ref())).await
}

#[tokio::test(start_paused = true)]
async fn another_file_is_renamed_to_its_name() {
    let folder = Folder::new();
    let path = folder.write("limits.toml", &text("10/hour"));
    let follower = follow(&path).await;
    for quota in ["20/hour", "30/hour", "40/hour"] {
        fs::rename(folder.write("new", &text(quota)), &path).expect("renamed");
        follower.reaches(&policy(quota), WITHIN).await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_truncated_and_written() {
    let folder = Folder::new();
    let path = folder.write("limits.toml", &text("10/hour"));
    let follower = follow(&path).await;
    for quota in ["20/hour", "300/hour", "4/hour"] {
        folder.write("limits.toml", &text(quota));
        follower.reaches(&policy(quota), WITHIN).await;
    }
    assert_eq!(follower.told.refused(), Vec::<String>::new());
}

/// As some tools do that want nobody to notice, and coarse file systems by themselves.
#[tokio::test(start_paused = true)]
async fn it_changes_at_once_with_the_same_length_and_time() {
    let folder = Folder::new();
    let path = folder.write("limits.toml", &text("10/hour"));
    let then = fs::metadata(&path).and_then(|metadata| metadata.modified()).expect("a time");
    let follower = follow(&path).await;
    folder.write("limits.toml", &text("20/hour"));
    File::options().write(true).open(&path).and_then(|file| file.set_modified(then)).expect("set");
    follower.reaches(&policy("20/hour"), WITHIN).await;
}

/// A volume of Kubernetes: the file is a link through a folder that is a link, and that one is swapped.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_link_on_the_way_to_it_is_swapped() {
    use std::os::unix::fs::symlink;

    let folder = Folder::new();
    let put = |number: u32, quota: &str| {
        let version = format!("..version_{number}");
        fs::create_dir(folder.0.join(&version)).expect("a folder");
        folder.write(&format!("{version}/limits.toml"), &text(quota));
        symlink(&version, folder.0.join("..data_tmp")).expect("a link");
        fs::rename(folder.0.join("..data_tmp"), folder.0.join("..data")).expect("swapped");
    };
    put(1, "10/hour");
    let path = folder.0.join("limits.toml");
    symlink("..data/limits.toml", &path).expect("a link");
    let follower = follow(&path).await;
    for (number, quota) in [(2, "20/hour"), (3, "30/hour")] {
        put(number, quota);
        fs::remove_dir_all(folder.0.join(format!("..version_{}", number - 1))).expect("removed");
        follower.reaches(&policy(quota), WITHIN).await;
    }
}

/// Each piece makes it a document that could be meant.
#[tokio::test(start_paused = true)]
async fn it_is_written_in_pieces() {
    let folder = Folder::new();
    let path = folder.write("limits.toml", &text("10/hour"));
    let follower = follow(&path).await;
    let rule = |number: u32| {
        format!(
            "[[rules]]\nname = \"more-{number}\"\nalgorithm = \"gcra\"\nquota = \"5/s\"\nkey = \"ip\"\npaths = [\"/{number}\"]\n"
        )
    };
    let mut whole = text("20/hour");
    let mut file = File::create(&path).expect("truncated");
    file.write_all(whole.as_bytes()).expect("written");
    for number in 0..30 {
        tokio::time::sleep(Duration::from_millis(25)).await;
        file.write_all(rule(number).as_bytes()).expect("written");
        whole.push_str(&rule(number));
    }
    follower.reaches(&Policy::from_toml(&whole).expect("sound"), WITHIN).await;
    // No piece was taken for the whole.
    follower.tells(&[PolicyEvent::Changed { version: 2 }]).await;
}

/// The first half is no document, and the writer takes a while.
#[tokio::test(start_paused = true)]
async fn half_of_it_is_written_first() {
    let folder = Folder::new();
    let path = folder.write("limits.toml", &text("10/hour"));
    let follower = follow(&path).await;
    let whole = text("20/hour");
    let (first, second) = whole.split_at(whole.len() - 20);
    fs::write(&path, first).expect("written");
    tokio::time::sleep(Duration::from_millis(400)).await;
    OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(second.as_bytes()))
        .expect("written");
    follower.reaches(&policy("20/hour"), WITHIN).await;
    // Half of it is not told of.
    follower.tells(&[PolicyEvent::Changed { version: 2 }]).await;
}

/// What is of no use stays so, but not the same.
#[tokio::test(start_paused = true)]
async fn it_is_of_no_use_in_two_ways_before_it_is_whole() {
    let folder = Folder::new();
    let path = folder.write("limits.toml", &text("10/hour"));
    let follower = follow(&path).await;
    for half in ["[[rules]]\nname", "[[rules]]\nname = \"calls\"\nalgorithm"] {
        folder.write("limits.toml", half);
        tokio::time::sleep(Duration::from_millis(550)).await;
    }
    folder.write("limits.toml", &text("20/hour"));
    follower.reaches(&policy("20/hour"), WITHIN).await;
    follower.tells(&[PolicyEvent::Changed { version: 2 }]).await;
}

#[tokio::test(start_paused = true)]
async fn json_is_followed_too() {
    let json = |quota: &str| {
        format!(r#"{{ "rules": [{{ "name": "a", "algorithm": "gcra", "quota": "{quota}", "key": "ip" }}] }}"#)
    };
    let folder = Folder::new();
    let path = folder.write("limits.json", &json("10/hour"));
    let follower = follow(&path).await;
    folder.write("limits.json", &json("20/hour"));
    follower.reaches(&Policy::from_json(&json("20/hour")).expect("sound"), WITHIN).await;
}

/// What was loaded by one is no news to its clone, and a change is news to both.
#[tokio::test(start_paused = true)]
async fn every_clone_looks_on_its_own() {
    let folder = Folder::new();
    let path = folder.write("limits.toml", &text("10/hour"));
    let one = PolicyFile::new(&path);
    one.load().await.expect("a policy");
    let other = one.clone();
    folder.write("limits.toml", &text("20/hour"));
    for source in [one, other] {
        tokio::time::timeout(WITHIN, source.changed()).await.expect("it has changed");
        assert_eq!(source.load().await, Ok(policy("20/hour")));
    }
}
