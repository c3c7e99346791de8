use std::{fmt, time::Duration};

use http::StatusCode;

/// What is wrong with the body of a request that a rule looks into.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BodyFault {
    /// Longer than so many bytes.
    TooLarge(usize),
    /// Not all of it came within this time.
    TooSlow(Duration),
    /// The layer does not read bodies: a mistake of the application's.
    Unread,
}

impl BodyFault {
    pub(super) fn status(self) -> StatusCode {
        match self {
            BodyFault::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BodyFault::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            BodyFault::Unread => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Whether the same request fails again, however often it is tried.
    pub(super) fn is_lasting(self) -> bool {
        matches!(self, BodyFault::TooLarge(_))
    }
}

/// Without the full stop.
impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyFault::TooLarge(1) => f.write_str("The body is longer than 1 byte"),
            BodyFault::TooLarge(most) => write!(f, "The body is longer than {most} bytes"),
            BodyFault::TooSlow(within) => write!(f, "The body did not come within {within:?}"),
            BodyFault::Unread => {
                f.write_str("A rule looks into the body, and the layer does not read it: it lacks .read_bodies()")
            }
        }
    }
}
