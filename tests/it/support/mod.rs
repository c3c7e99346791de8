//! Real servers, and limiters over every store.

pub mod app;
pub mod asking;
pub mod cluster;
pub mod echo;
pub mod flaky;
pub mod folder;
pub mod log;
pub mod proxy;
pub mod purposed;
pub mod sentinel;
pub mod server;
pub mod sockets;
pub mod stores;
#[cfg(feature = "tls")]
pub mod tls;
