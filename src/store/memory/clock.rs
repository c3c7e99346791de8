use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since the Unix epoch, read from the processor's own counter: a quarter of the price of the system clock,
/// and it never steps.
#[derive(Debug)]
pub(super) struct Clock {
    counter: quanta::Clock,
    began: u64,
    /// What the system clock said then.
    epoch: u64,
}

impl Clock {
    pub(super) fn new() -> Clock {
        let counter = quanta::Clock::new();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { began: counter.raw(), counter, epoch: crate::limit::micros(since_epoch) }
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.epoch + self.counter.delta_as_nanos(self.began, self.counter.raw()) / 1_000
    }
}
