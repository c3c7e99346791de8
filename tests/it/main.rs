//! Everything that needs more than one part: real servers, real HTTP, several processes.
//!
//! Run with `tests/run`, which says where the servers are.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;
mod traces;
