//! What the operating system knows: processor time, memory, cores.

use std::{fs, process::Command, thread, time::Duration};

/// The core of clients, and of the web servers that are measured.
pub const CLIENT_CORE: u32 = 0;
/// The core of redis-server, and of what sends load to web servers.
pub const SERVER_CORE: u32 = 1;

/// Processor time that a process has used so far, user and system, in nanoseconds.
pub fn cpu_nanos(pid: u32) -> f64 {
    // The kernel books a thread's time when it leaves the processor; this thread does so here.
    thread::sleep(Duration::from_millis(1));
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let nanos = |task: fs::DirEntry| -> Option<f64> {
        fs::read_to_string(task.path().join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    tasks.filter_map(|task| nanos(task.ok()?)).sum()
}

/// Bytes of this process that are in memory.
pub fn resident_bytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its resident size");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("kilobytes") * 1024.0
}

/// Runs `work` on a thread of its own that stays on one core, so that a client and its server do not push each other around.
pub fn on_core<T: Send>(core: u32, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let task = fs::read_link("/proc/thread-self").expect("this thread");
            let task = task.file_name().expect("its number").to_os_string();
            // Without taskset the figures are only noisier.
            let _ = Command::new("taskset").args(["-c", "-p", &core.to_string()]).arg(task).output();
            work()
        });
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A command that stays on one core where taskset exists.
pub fn pinned(program: &str, core: u32) -> Command {
    if Command::new("taskset").arg("--version").output().is_err() {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string(), program]);
    command
}

/// This thread's own runtime: a server's client on one core needs no more, and no threads wake each other.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work)
}
