//! How long the machine kept this thread from running.

use std::{cell::RefCell, fs::File, os::unix::fs::FileExt, time::Duration};

/// The time that this thread has been ready to run and was not let, since it began: the kernel's own account. Time in which
/// this process does something else is not in it.
pub fn stalled() -> Duration {
    account().1
}

/// The time that this thread has run, and the time that it was kept from running.
pub fn account() -> (Duration, Duration) {
    thread_local!(static ACCOUNT: RefCell<Option<File>> = const { RefCell::new(None) });
    ACCOUNT.with_borrow_mut(|file| {
        let file =
            file.get_or_insert_with(|| File::open("/proc/thread-self/schedstat").expect("the kernel keeps account"));
        let mut text = [0; 96];
        let read = file.read_at(&mut text, 0).expect("an account");
        let text = String::from_utf8_lossy(&text[..read]);
        let mut numbers = text.split_whitespace().map(|nanos| Duration::from_nanos(nanos.parse().expect("a number")));
        (numbers.next().expect("the time it ran"), numbers.next().expect("the time it was kept"))
    })
}
