use std::{fmt, sync::Arc};

use http::request::Parts;

/// A share of a limit that is kept for critical requests.
#[derive(Clone)]
pub(crate) struct Reserve {
    pub(crate) share: f64,
    pub(crate) is_critical: Arc<dyn Fn(&Parts) -> bool + Send + Sync>,
}

impl Reserve {
    /// The units that are kept of so many: what is not whole goes to the reserve, so that ordinary requests never have more than
    /// the rest. `None` if that leaves them nothing, or the share is none.
    pub(crate) fn units(&self, capacity: u64) -> Option<u64> {
        if !(self.share > 0.0 && self.share < 1.0) {
            return None;
        }
        // A hair more, or a product that is whole but for the last bit would lose a unit.
        let ordinary = (capacity as f64 * (1.0 - self.share) * (1.0 + f64::EPSILON * 4.0)) as u64;
        (ordinary > 0).then(|| capacity.saturating_sub(ordinary))
    }
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for critical requests", self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_requests_never_have_more_than_the_rest() {
        let units = |share, capacity| Reserve { share, is_critical: Arc::new(|_| true) }.units(capacity);
        assert_eq!(units(0.2, 100), Some(20));
        assert_eq!(units(0.1, 1_000), Some(100));
        assert_eq!(units(0.7, 10), Some(7));
        assert_eq!(units(0.35, 20), Some(7));
        // 2.4 units are two.
        assert_eq!(units(0.2, 3), Some(1));
        assert_eq!(units(0.2, 1), None);
        assert_eq!(units(0.9, 5), None);
        for share in [0.0, 1.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
            assert_eq!(units(share, 100), None, "{share}");
        }
    }
}
