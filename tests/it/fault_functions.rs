//! A server that loses its functions over and over.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use sluicegate::Limiter;

use crate::{
    fault_scripts::lost_over_and_over,
    support::faulted::{Faulted, PATIENT},
};

/// Every other time all libraries go at once, else one by one.
async fn lose(round: u64, connection: &mut MultiplexedConnection) {
    let function = || redis::cmd("FUNCTION");
    if round.is_multiple_of(2) {
        return function().arg("FLUSH").query_async(connection).await.expect("flushed");
    }
    let list: Vec<std::collections::HashMap<String, redis::Value>> =
        function().arg("LIST").query_async(connection).await.expect("a list");
    for library in list {
        let name: String = redis::from_redis_value(library["library_name"].clone()).expect("a name");
        let _: () = function().arg("DELETE").arg(name).query_async(connection).await.expect("deleted");
    }
}

#[tokio::test]
async fn deleted_every_ten_milliseconds() {
    let mut faulted = Faulted::with(&[], |store| store.functions().bare().deadline(PATIENT), Limiter::builder).await;
    // Twice loaded, looked at and called; then the script, by digest and by text; and one to spare.
    lost_over_and_over(&mut faulted, 9, lose).await;
    let [functions, loads, _] = calls(&mut faulted.direct).await;
    assert!(functions > loads && loads > 50, "{functions} calls, {loads} times loaded");
    // A script is for who loses the function twice in one call. Nobody keeps to that afterwards.
    faulted.is_over().await;
    let [functions, loads, scripts] = calls(&mut faulted.direct).await;
    let after = faulted.load.run(Duration::from_millis(100)).await;
    let asked = after.samples.len() as u64;
    assert_eq!(calls(&mut faulted.direct).await, [functions + asked, loads, scripts]);
}

/// How often the server was asked for functions, sent them, and asked for scripts.
async fn calls(connection: &mut MultiplexedConnection) -> [u64; 3] {
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.expect("statistics");
    let calls = |command: &str| -> u64 {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().expect("a number").parse().expect("a number"))
    };
    [calls("fcall"), calls("function|load"), calls("eval") + calls("evalsha")]
}
