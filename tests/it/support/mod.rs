//! Real servers, and limiters over every store.

pub mod app;
pub mod asking;
pub mod cases;
pub mod checker;
pub mod cluster;
pub mod dice;
pub mod echo;
pub mod events;
pub mod fault_proxy;
pub mod faulted;
pub mod flaky;
pub mod folder;
pub mod hot_slot;
pub mod leak;
pub mod load;
pub mod log;
pub mod proxy;
pub mod purposed;
pub mod resp;
pub mod sentinel;
pub mod server;
pub mod sockets;
pub mod stall;
pub mod stores;
#[cfg(feature = "tls")]
pub mod tls;
