//! What a process holds on to: open files, tasks, memory.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};

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
    /// The same without a look at memory.
    async fn but_memory_is_given_back(self) {
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

/// A runtime on this thread alone, so that everything limiters and their tasks allocate is counted here. Proxies have threads of their own.
pub fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// What may be allocated and not given back.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// A table that grows takes more bytes and is one piece; what is lost with each decision, or connection, is a piece each time.
    pub pieces: i64,
    pub bytes: i64,
}

/// Runs `work`. Afterwards no more files and tasks are held than before, and no more memory but for what there is room for. It is counted
/// as it is allocated and given back: exact where pages are not, which an allocator keeps after a test has dropped its notes. So `work`
/// drops what it has noted; whatever it returns is counted too.
#[allow(clippy::print_stderr)]
pub fn leaves<T>(runtime: &Runtime, room: Room, work: impl Future<Output = T>) -> T {
    let mut outcome = None;
    let left = allocation_counter::measure(|| {
        outcome = Some(runtime.block_on(async {
            let held = held();
            let outcome = work.await;
            held.but_memory_is_given_back().await;
            outcome
        }));
    });
    let (bytes, pieces) = (left.bytes_current, left.count_current);
    eprintln!("left behind: {pieces} pieces, {bytes} bytes");
    assert!(
        pieces <= room.pieces && bytes <= room.bytes,
        "{pieces} pieces and {bytes} bytes are left, room is {room:?}"
    );
    outcome.expect("it has run")
}
