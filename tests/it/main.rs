//! Everything that needs more than one part: real servers, real HTTP, several processes.
//!
//! Run with `tests/run`, which says where the servers are.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]

mod addresses;
mod applies;
mod build_errors;
mod calendar;
mod cell;
mod charges;
mod check;
mod cluster;
mod cluster_apart;
mod cluster_engines;
mod cluster_faults;
mod cluster_plain;
mod cluster_replicas;
mod cluster_returning;
mod cluster_traces;
mod corners;
mod cors;
mod credentials;
mod edge;
mod exact_time;
mod exactness;
mod fault_breaker;
mod fault_cancel;
mod fault_cluster_cut;
mod fault_cluster_failover;
mod fault_commit;
mod fault_cut;
mod fault_demotion;
mod fault_functions;
mod fault_hang;
mod fault_network;
mod fault_refusals;
mod fault_replication;
mod fault_restart;
mod fault_scripts;
mod fault_soak;
mod forged;
mod functions;
mod grpc;
mod headers;
mod house;
mod keys;
mod known_bugs;
mod laws;
mod lease_http;
mod lease_processes;
mod lease_traces;
mod leases;
mod memory_store;
mod model;
mod no_scripts;
mod odd_answers;
mod ordering;
mod processes;
mod receipts;
mod reconnecting;
mod redis_store;
mod refusals;
mod replicas;
mod resilience;
mod scenarios;
mod security;
mod sentinel;
mod settle;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod topologies;
mod traces;
mod unlimited;
