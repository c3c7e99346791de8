//! How long the machine kept this thread, or a server, from running.

use std::{cell::RefCell, fs::File, os::unix::fs::FileExt, time::Duration};

/// The time that this thread has been ready to run and was not let, since it began: the kernel's own account. Time in which
/// this process does something else is not in it.
pub fn stalled() -> Duration {
    thread_local!(static ACCOUNT: RefCell<Option<File>> = const { RefCell::new(None) });
    ACCOUNT.with_borrow_mut(|file| {
        let open = || File::open("/proc/thread-self/schedstat").expect("the kernel keeps account");
        read(file.get_or_insert_with(open)).expect("an account")
    })
}

fn read(file: &File) -> Option<Duration> {
    let mut text = [0; 96];
    let length = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    // First the time that it has run.
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// The account of a server, which does all its work on one thread.
#[derive(Debug)]
pub struct Account(File);

impl Account {
    pub fn of(pid: u32) -> Account {
        Account(File::open(format!("/proc/{pid}/schedstat")).expect("the kernel keeps account"))
    }

    /// The time that it was kept from running; none is added when it is dead.
    pub fn stalled(&self) -> Duration {
        read(&self.0).unwrap_or_default()
    }
}
