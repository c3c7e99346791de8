//! Sockets that this process has open.

use std::fs;

/// How many TCP sockets of this process lead to a port of this machine. Other tests of the process use other ports.
pub fn to_port(port: u16) -> usize {
    rows(port).len()
}

/// Which timer runs on each of them: 02 is keepalive.
pub fn timers(port: u16) -> Vec<String> {
    rows(port).iter().map(|row| row[5].split(':').next().unwrap_or_default().to_owned()).collect()
}

/// Fields: number, local address, remote address, state, queues, timer, retransmits, user, timeout, inode.
fn rows(port: u16) -> Vec<Vec<String>> {
    let own: Vec<String> = fs::read_dir("/proc/self/fd")
        .expect("this process")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect();
    let wanted = format!(":{port:04X}");
    let table = fs::read_to_string("/proc/self/net/tcp").expect("the table of sockets");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    rows.filter(|row| row[2].ends_with(&wanted) && own.contains(&format!("socket:[{}]", row[9]))).collect()
}
