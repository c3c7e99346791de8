//! When the machine took a processor away: watches, one on each, that do nothing but wake.
//!
//! A machine that is shared gives its processors to others for milliseconds at a time. Whoever waits for a timer then waits
//! longer, and nothing that the kernel counts of a thread tells.

use std::{
    process::{Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use super::stall::stalled;

/// How often a watch looks.
const EVERY: Duration = Duration::from_micros(500);
/// Later than this no watch wakes on a machine that is there.
const LATE: Duration = Duration::from_micros(250);

type Gap = (Instant, Instant);

struct Watch {
    seen: Mutex<Seen>,
}

struct Seen {
    until: Instant,
    gaps: Vec<Gap>,
}

/// The watches, which begin with the first call.
fn watches() -> &'static [Arc<Watch>] {
    static WATCHES: OnceLock<Vec<Arc<Watch>>> = OnceLock::new();
    let begin = |processor| {
        // Room for all that a long run sees: tests count what is allocated.
        let seen = Seen { until: Instant::now(), gaps: Vec::with_capacity(1 << 16) };
        let watch = Arc::new(Watch { seen: Mutex::new(seen) });
        let keeper = Arc::clone(&watch);
        std::thread::spawn(move || keeper.keep(processor));
        watch
    };
    let processors = || 0..std::thread::available_parallelism().map_or(1, usize::from);
    WATCHES.get_or_init(|| processors().map(begin).collect())
}

impl Watch {
    fn keep(&self, processor: usize) {
        let is_first = stay_on(processor);
        // Where other threads kept it from running, that was not the machine. None keep the first.
        let stalled = || if is_first { Duration::ZERO } else { stalled() };
        let (mut last, mut kept) = (Instant::now(), stalled());
        loop {
            std::thread::sleep(EVERY);
            let (woke, waited) = (Instant::now(), stalled());
            // From when it last woke: the machine may also have been away while this was at work.
            let due = last + EVERY + (waited - kept);
            let mut seen = self.seen.lock().expect("no panic");
            if woke > due + LATE {
                seen.gaps.push((due, woke));
            }
            seen.until = woke;
            drop(seen);
            (last, kept) = (woke, waited);
        }
    }

    /// The parts of this time in which the processor was away.
    fn gaps(&self, (from, to): Gap) -> Vec<Gap> {
        let seen = self.seen.lock().expect("no panic");
        let first = seen.gaps.partition_point(|gap| gap.1 <= from);
        let within = seen.gaps[first..].iter().take_while(|gap| gap.0 < to);
        within.map(|gap| (gap.0.max(from), gap.1.min(to))).collect()
    }
}

/// Keeps this thread on one processor. Answers whether it comes before all others there, for which it needs a right.
fn stay_on(processor: usize) -> bool {
    let path = std::fs::read_link("/proc/thread-self").expect("this thread");
    let thread = path.file_name().and_then(|name| name.to_str()).expect("its number");
    let done = |program: &str, words: &[&str]| {
        let status = Command::new(program).args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    done("taskset", &["--cpu-list", "--pid", &processor.to_string(), thread])
        && done("chrt", &["--fifo", "--pid", "1", thread])
}

/// Begins to watch.
pub fn begin() {
    watches();
}

/// Until when all have been seen.
pub fn seen() -> Instant {
    let until = |watch: &Arc<Watch>| watch.seen.lock().expect("no panic").until;
    watches().iter().map(until).min().expect("a processor")
}

/// For how long a processor was away in this time, whichever it was: a decision needs one for itself and one for the server.
pub fn slept(from: Instant, to: Instant) -> Duration {
    let mut gaps: Vec<Gap> = watches().iter().flat_map(|watch| watch.gaps((from, to))).collect();
    gaps.sort_unstable();
    let (mut sum, mut end) = (Duration::ZERO, from);
    for gap in gaps {
        sum += gap.1.saturating_duration_since(gap.0.max(end));
        end = end.max(gap.1);
    }
    sum
}
