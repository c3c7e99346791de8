//! What the HTTP edge costs a request: allocations, counted, and time.
//!
//! `cargo bench --bench edge` prints one table. Rows take turns, so that they share the machine's moods; time is the median of the
//! turns. Allocations are counted by the thread that makes them and are the same on every machine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub
)]

mod headers;
mod keys;
mod table;

use table::Row;

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        return println!("Nothing to test here; `cargo bench --bench edge` measures.");
    }
    let rows: Vec<Row> = keys::rows().into_iter().chain(headers::rows()).collect();
    table::print(rows);
}
