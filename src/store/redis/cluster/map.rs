//! Reads the answer to `CLUSTER SLOTS`.

use redis::Value;

use super::{
    address::{Address, known},
    slot::SLOTS,
};

/// Slots that one node owns.
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) owner: Address,
    pub(super) replicas: Vec<Address>,
}

/// The ranges that `here` told of. What makes no sense is left out: an owner that is missing shows when it is asked.
pub(super) fn read(reply: &Value, here: &Address) -> Vec<Range> {
    let Value::Array(entries) = reply else { return Vec::new() };
    entries.iter().filter_map(|entry| range(entry, here)).collect()
}

fn range(entry: &Value, here: &Address) -> Option<Range> {
    let Value::Array(fields) = entry else { return None };
    let [Value::Int(first), Value::Int(last), owner, replicas @ ..] = &fields[..] else { return None };
    let slot = |number: i64| u16::try_from(number).ok().filter(|slot| usize::from(*slot) < SLOTS);
    let replicas = replicas.iter().filter_map(|replica| node(replica, here)).collect();
    Some(Range { first: slot(*first)?, last: slot(*last)?, owner: node(owner, here)?, replicas })
}

/// Host, port, id, and more ways to reach it on newer servers.
fn node(entry: &Value, here: &Address) -> Option<Address> {
    let Value::Array(fields) = entry else { return None };
    let [host, Value::Int(port), more @ ..] = &fields[..] else { return None };
    let port = u16::try_from(*port).ok().filter(|port| *port > 0)?;
    let host = match text(host) {
        // It is to be reached by name, and has been given none.
        Some("?") => more.get(1).and_then(address_in).unwrap_or_default(),
        host => host.unwrap_or_default(),
    };
    Some(Address { host: known(host, here), port })
}

fn address_in(more: &Value) -> Option<&str> {
    let is_ip = |name: &Value| text(name) == Some("ip");
    match more {
        Value::Array(pairs) => pairs.chunks_exact(2).find_map(|pair| match pair {
            [name, value] if is_ip(name) => text(value),
            _ => None,
        }),
        Value::Map(pairs) => pairs.iter().find(|(name, _)| is_ip(name)).and_then(|(_, value)| text(value)),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn entry(first: i64, last: i64, node: Vec<Value>) -> Value {
        Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(node)])
    }

    #[test]
    fn replicas_stand_behind_their_primary() {
        let here = Address { host: "here".into(), port: 1 };
        let node = |host: &str, port| Value::Array(vec![bulk(host), Value::Int(port), bulk("id")]);
        let replicas = [node("10.0.0.2", 7_001), Value::Nil, node("", 7_002)];
        let entry = [&[Value::Int(0), Value::Int(5), node("10.0.0.1", 7_000)][..], &replicas].concat();
        let ranges = read(&Value::Array(vec![Value::Array(entry)]), &here);
        let found = ranges.iter().flat_map(|range| &range.replicas).map(|found| (&*found.host, found.port));
        assert_eq!(found.collect::<Vec<_>>(), [("10.0.0.2", 7_001), ("here", 7_002)]);
    }

    fn hosts(reply: Vec<Value>) -> Vec<String> {
        let here = Address { host: "here".into(), port: 1 };
        let ranges = read(&Value::Array(reply), &here);
        ranges
            .iter()
            .map(|range| format!("{}-{} {}:{}", range.first, range.last, range.owner.host, range.owner.port))
            .collect()
    }

    #[test]
    fn nodes_are_named_by_address_by_host_name_or_not_at_all() {
        let ip = Value::Array(vec![bulk("ip"), bulk("10.0.0.9")]);
        let reply = vec![
            entry(0, 5, vec![bulk("10.0.0.1"), Value::Int(7_000), bulk("id")]),
            entry(6, 6, vec![bulk("a.example"), Value::Int(7_001), bulk("id"), ip.clone()]),
            entry(7, 8, vec![Value::Nil, Value::Int(7_002), bulk("id")]),
            entry(9, 9, vec![bulk(""), Value::Int(7_003)]),
            entry(10, 10, vec![bulk("?"), Value::Int(7_004), bulk("id"), ip]),
            entry(11, 11, vec![bulk("?"), Value::Int(7_005), bulk("id")]),
        ];
        assert_eq!(
            hosts(reply),
            [
                "0-5 10.0.0.1:7000",
                "6-6 a.example:7001",
                "7-8 here:7002",
                "9-9 here:7003",
                "10-10 10.0.0.9:7004",
                "11-11 here:7005"
            ]
        );
    }

    #[test]
    fn nonsense_is_left_out() {
        let node = || vec![bulk("h"), Value::Int(1)];
        let reply = vec![
            Value::Nil,
            entry(-1, 5, node()),
            entry(0, 16_384, node()),
            entry(0, 5, vec![bulk("h"), Value::Int(0)]),
            entry(0, 5, vec![]),
            Value::Array(vec![]),
        ];
        assert!(hosts(reply).is_empty());
        assert!(read(&Value::Okay, &Address { host: "h".into(), port: 1 }).is_empty());
    }
}
