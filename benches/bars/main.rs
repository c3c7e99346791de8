//! What the crate promises about its price, measured.
//!
//! `cargo bench --bench bars` prints one table: each promise as a ratio to a reference, and whether it is kept. Names of
//! sections narrow it: `cargo bench --bench bars -- redis server leases bytes memory resilience http policy`.
//!
//! On Redis the reference is the *floor*: a minimal script of the same algorithm and answer, written by hand (`floor/`),
//! called over one shared connection with nothing around it. In memory it is `governor`, over HTTP it is axum without a
//! limiter, or with the floor in a handwritten middleware.
//!
//! Ratios hold where numbers do not: both sides of a ratio are measured in turns, the ratio is taken within each turn,
//! and the table shows the median and the range of these. Where the range is wide the machine was busy with other things.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub
)]

mod algorithms;
mod app;
mod bytes;
mod contender;
mod drive;
mod http;
mod leases;
mod machine;
mod memory;
mod policy;
mod report;
mod resident;
mod resilience;
mod rules;
mod server;
// The fault tests leave out what the machine takes from them in the same way.
#[allow(dead_code)]
#[path = "../../tests/it/support/stall.rs"]
mod stall;
#[path = "../../tests/it/support/watch.rs"]
mod watch;

use report::Table;

type Section = (&'static str, fn(&mut Table));

const SECTIONS: [Section; 8] = [
    ("redis", rules::run),
    ("server", algorithms::run),
    ("leases", leases::run),
    ("bytes", bytes::run),
    ("memory", memory::run),
    ("resilience", resilience::run),
    ("http", http::run),
    ("policy", policy::run),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // Servers and subjects of measurements run in processes of their own.
        [app::SERVE, which, url] => return app::serve(which, url),
        [resident::FILL, which, shape] => return resident::fill(which, shape),
        _ => {}
    }
    if !args.iter().any(|arg| arg == "--bench") {
        return println!("Nothing to test here; `cargo bench --bench bars` measures.");
    }
    let wanted: Vec<&str> = args.iter().map(String::as_str).filter(|arg| !arg.starts_with("--")).collect();
    for name in &wanted {
        let known = SECTIONS.map(|(section, _)| section);
        assert!(known.contains(name), "no section is named {name}; there are {}", known.join(", "));
    }
    let mut table = Table::default();
    for (name, run) in SECTIONS {
        if wanted.is_empty() || wanted.contains(&name) {
            eprintln!("measuring {name}");
            run(&mut table);
        }
    }
    table.print();
}
