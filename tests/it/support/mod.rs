//! Real servers, and limiters over every store.

pub mod server;
pub mod stores;
