//! Leases of concurrency rules, extended and ended line by line.

use super::{Inner, OVERFLOW, lock};
use crate::{
    algorithm::Moment,
    store::{Answer, Ask, Line, Purpose, Verdict, Wait},
};

impl Inner {
    pub(super) fn keep_leases(&self, ask: &Ask<'_>, at: Moment) -> Answer {
        let mut answer = Answer::default();
        for line in ask.lines {
            answer.push(match ask.purpose {
                Purpose::Renew => self.renew(line, at),
                _ => self.release(line, at),
            });
        }
        answer
    }

    fn release(&self, line: &Line<'_>, at: Moment) -> Verdict {
        // A key that there was no room for has its lease in the overflow count.
        for key in [line.key, OVERFLOW] {
            let hash = self.hash(line, key);
            if lock(self.shard(hash)).release(hash, line, key, at) {
                break;
            }
        }
        Verdict { wait: Wait::None, remaining: 0, reset_after: 0, receipt: line.receipt, tenant_receipt: 0 }
    }

    fn renew(&self, line: &Line<'_>, at: Moment) -> Verdict {
        // In the overflow count first: there may be room for the key by now, and a lease must not be held twice.
        let hash = self.hash(line, OVERFLOW);
        let mut shard = lock(self.shard(hash));
        let key = if shard.release(hash, line, OVERFLOW, at) { OVERFLOW } else { line.key };
        drop(shard);
        let renewed = |key: &[u8]| {
            let hash = self.hash(line, key);
            lock(self.shard(hash)).renew(hash, line, key, at)
        };
        let lost =
            || Verdict { wait: Wait::Never, remaining: 0, reset_after: 0, receipt: line.receipt, tenant_receipt: 0 };
        renewed(key).or_else(|| renewed(OVERFLOW)).unwrap_or_else(lost)
    }
}
