use smallvec::SmallVec;

use super::{Inner, Locked, Overflowing, shard::Full, shard_of};
use crate::{
    algorithm::{Moment, fair},
    store::{Answer, Ask, Line, Purpose, Verdict},
};

impl Inner {
    /// The decision where limits are shared: the counts of tenants are judged first, and say what must be left.
    pub(super) fn decide_fairly(
        &self,
        ask: &Ask<'_>,
        at: Moment,
        overflowing: Overflowing,
    ) -> Result<Answer, Overflowing> {
        let counts = with_tenants(ask.lines, ask.purpose);
        let Locked { places, order, shards: mut locked } = self.lock_all(&counts, overflowing);
        let place_of = |hash: u64| order.binary_search(&shard_of(hash)).unwrap_or_default();

        let spend = ask.purpose == Purpose::Spend;
        let mut judged = SmallVec::<[_; 4]>::new();
        let mut full = overflowing;
        for (place, (line, (hash, key))) in (0u32..).zip(counts.iter().zip(&places)) {
            let Some(shard) = locked.get_mut(place_of(*hash)) else { continue };
            match shard.judge(*hash, line, key, at, spend) {
                Ok(one) => judged.push((line, *hash, *key, one)),
                Err(Full) => full |= 1 << place,
            }
        }
        if full != overflowing {
            // As they were: it is all asked again.
            for (line, hash, key, one) in judged {
                if let Some(shard) = locked.get_mut(place_of(hash)) {
                    let _ = shard.finish(hash, line, key, at, one, false);
                }
            }
            return Err(full);
        }
        let (rules, tenants) = judged.split_at_mut(ask.lines.len());
        let shared = rules.iter_mut().filter(|(line, ..)| line.tenant.is_some());
        for ((line, hash, key, one), (tenant, tenant_hash, tenant_key, _)) in shared.zip(tenants) {
            let Some(shard) = locked.get_mut(place_of(*tenant_hash)) else { continue };
            let (_, count) = shard.look(*tenant_hash, tenant, tenant_key, at, 0);
            let used = tenant.limit.params().used(count);
            let Some(shard) = locked.get_mut(place_of(*hash)) else { continue };
            let need = line.need();
            if used > 0 && need > 0 {
                let (now, _) = shard.look(*hash, line, key, at, need + line.limit.fair().kept(used, need));
                one.wait = fair::wait(one.wait, now, count.reset_after);
            }
        }
        let fits = rules.iter().all(|(line, .., one)| line.shadow || one.wait.fits());
        let charged = rules.iter().map(|(line, .., one)| (line, spend && fits && one.wait.fits()));
        // A tenant's use is counted where its rule is charged.
        let of_tenants = charged.clone().filter(|(line, _)| line.tenant.is_some());
        let charges: SmallVec<[bool; 4]> = charged.clone().chain(of_tenants).map(|(_, charge)| charge).collect();
        let mut verdicts = SmallVec::with_capacity(judged.len());
        for ((line, hash, key, one), charge) in judged.into_iter().zip(charges) {
            let Some(shard) = locked.get_mut(place_of(hash)) else { continue };
            verdicts.push(shard.finish(hash, line, key, at, one, charge));
        }
        Ok(answer(verdicts, ask.lines, ask.purpose))
    }
}

/// The lines, then the counts of their tenants in the same order.
pub(super) fn with_tenants<'a>(lines: &[Line<'a>], purpose: Purpose) -> SmallVec<[Line<'a>; 4]> {
    let tenants = lines.iter().filter_map(|line| line.of_tenant(purpose));
    lines.iter().copied().chain(tenants).collect()
}

/// The answer of these verdicts, those of lines and then of their tenants.
pub(super) fn answer(mut verdicts: SmallVec<[Verdict; 1]>, lines: &[Line<'_>], purpose: Purpose) -> Answer {
    let own = lines.len().min(verdicts.len());
    let (own, tenants) = verdicts.split_at_mut(own);
    let shared = own.iter_mut().zip(lines).filter(|(_, line)| line.of_tenant(purpose).is_some());
    for ((verdict, _), tenant) in shared.zip(tenants) {
        verdict.tenant_receipt = tenant.receipt;
    }
    verdicts.truncate(lines.len());
    Answer { verdicts }
}
