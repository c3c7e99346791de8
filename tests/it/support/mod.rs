//! Real servers, and limiters over every store.

pub mod app;
pub mod cluster;
pub mod echo;
pub mod log;
pub mod proxy;
pub mod server;
pub mod stores;
