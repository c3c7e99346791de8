//! What a process holds on to: open files, tasks, memory.

use std::time::{Duration, Instant};

use tokio::runtime::Handle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Open files and sockets of this process.
    pub files: usize,
    /// Tasks of this runtime that have not ended.
    pub tasks: usize,
    /// Bytes of memory that are in use.
    pub memory: usize,
}

/// What is held now.
pub fn held() -> Held {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("the kernel keeps account");
    let pages: usize = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    Held {
        files: std::fs::read_dir("/proc/self/fd").expect("the kernel keeps account").count(),
        tasks: Handle::current().metrics().num_alive_tasks(),
        memory: pages * 4_096,
    }
}

impl Held {
    /// The same without a look at memory, for tests whose own records grow by more than a leak would.
    pub async fn but_memory_is_given_back(self) {
        Held { memory: usize::MAX / 2, ..self }.is_given_back().await;
    }

    /// Waits until no more files and tasks are held than then. Memory may have grown by a twentieth, and by four mebibytes that
    /// the allocator keeps for the records of a test.
    pub async fn is_given_back(self) {
        let since = Instant::now();
        loop {
            let now = held();
            if now.files <= self.files && now.tasks <= self.tasks {
                let bound = self.memory + self.memory / 20 + (4 << 20);
                assert!(now.memory <= bound, "memory grew from {} to {}", self.memory, now.memory);
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(5), "then {self:?}, now {now:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
