//! Bytes of a key in memory: the growth of a fresh process that holds a million.
//!
//! A counting allocator would need unsafe code and would slow down what the other sections time. The resident size is
//! what an operator sees: it includes what the allocator rounds up and what growing left behind.

use std::process::Command;

use crate::{
    machine::resident_bytes,
    memory::{SLOW, acquire, store},
    report::{Bar, Table},
};

/// The argument that makes this binary fill a limiter and say how much it grew.
pub const FILL: &str = "--fill";

const KEYS: usize = 1_000_000;

pub fn run(table: &mut Table) {
    for (shape, name) in [("short", "key of 12 bytes"), ("long", "key of 36 bytes")] {
        let bar = if shape == "short" { Bar::AtMost(120.0) } else { Bar::None };
        table.value(format!("memory: resident bytes, {name}"), grown("ours", shape), "bytes", bar);
        table.value(format!("memory: resident bytes, {name}, governor"), grown("governor", shape), "bytes", Bar::None);
    }
}

fn grown(which: &str, shape: &str) -> f64 {
    let child = Command::new(std::env::current_exe().expect("this binary")).args([FILL, which, shape]).output();
    let printed = String::from_utf8(child.expect("a child").stdout).expect("text");
    printed.trim().parse().expect("bytes")
}

pub fn fill(which: &str, shape: &str) {
    let key = |number: usize| match shape {
        "short" => format!("user-{number:07}"),
        _ => format!("{number:08x}-0000-4000-8000-000000000000"),
    };
    let (limiter, governor) = (SLOW.limiter(store()), SLOW.governor());
    let before = resident_bytes();
    for number in 0..KEYS {
        let allowed = match which {
            "ours" => acquire(&limiter, key(number)),
            _ => governor.check_key(&key(number)).is_ok(),
        };
        assert!(allowed);
    }
    println!("{}", (resident_bytes() - before) / KEYS as f64);
}
