//! `grpc-status-details-bin`: a `google.rpc.Status` with `RetryInfo` and `QuotaFailure`, in Protocol Buffers and base64.
//!
//! Five small messages, written by hand: their field numbers cannot change, and a code generator would be the larger part.

use http::HeaderValue;

use super::{Cause, Refusal};
use crate::base64::base64;

const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";
const QUOTA_FAILURE: &[u8] = b"type.googleapis.com/google.rpc.QuotaFailure";
/// Clients take a few kilobytes of metadata; a request that breaks more rules than this hears of the first.
const MOST_VIOLATIONS: usize = 8;

/// `None` where there is nothing to add to the status.
pub(super) fn of(refusal: &Refusal<'_>, code: u16, message: &str) -> Option<HeaderValue> {
    let mut details = Message::default();
    if let Some(seconds) = refusal.retry_after {
        let duration = Message::default().number(1, seconds);
        details = details.any(RETRY_INFO, Message::default().message(1, duration));
    }
    let mut violations = Message::default();
    // A ban is no quota.
    for standing in refusal.violated().filter(|_| refusal.cause != Cause::Ban).take(MOST_VIOLATIONS) {
        let limit = standing.limit();
        let violation = Message::default()
            .bytes(1, standing.rule().as_bytes())
            .bytes(2, limit.to_string().as_bytes())
            .bytes(5, standing.rule().as_bytes())
            .number(7, limit.quota().capacity());
        violations = violations.message(1, violation);
    }
    if !violations.0.is_empty() {
        details = details.any(QUOTA_FAILURE, violations);
    }
    if details.0.is_empty() {
        return None;
    }
    let mut status = Message::default().number(1, code.into()).bytes(2, message.as_bytes());
    status.0.extend(details.0);
    HeaderValue::try_from(base64(&status.0)).ok()
}

/// The bytes of a message, field by field.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// A whole number. Negative ones and those beyond 63 bits do not occur.
    fn number(mut self, field: u8, number: u64) -> Message {
        self.0.push(field << 3);
        self.varint(number);
        self
    }

    fn bytes(mut self, field: u8, bytes: &[u8]) -> Message {
        self.0.push(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn message(self, field: u8, message: Message) -> Message {
        self.bytes(field, &message.0)
    }

    /// One of a status's details.
    fn any(self, kind: &[u8], message: Message) -> Message {
        self.message(3, Message::default().bytes(1, kind).bytes(2, &message.0))
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}
