use std::{iter::Rev, net::IpAddr};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{GetAll, ValueIter},
};

/// Entries that are looked at.
pub(super) const MOST_ENTRIES: usize = 32;
/// Bytes that are looked at.
const MOST_BYTES: usize = 4096;

/// How a list of addresses is read.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    /// Where the last separator stands.
    pub(super) last_comma: fn(&[u8]) -> Option<usize>,
    pub(super) parse: fn(&[u8]) -> Option<IpAddr>,
}

/// The entries of a list field from the last to the first, over all its lines; `None` for what is no address, and for what is
/// too far away to be looked at, which is the last then.
pub(super) struct FromRight<'a> {
    reading: Reading,
    /// Lines that are left; none when the end was reached.
    lines: Option<Rev<ValueIter<'a, HeaderValue>>>,
    /// What is left of a line.
    line: Option<&'a [u8]>,
    bytes: usize,
    entries: usize,
}

impl<'a> FromRight<'a> {
    pub(super) fn new(headers: &'a HeaderMap, name: &HeaderName, reading: Reading) -> FromRight<'a> {
        let lines: GetAll<'a, HeaderValue> = headers.get_all(name);
        FromRight { reading, lines: Some(lines.iter().rev()), line: None, bytes: MOST_BYTES, entries: MOST_ENTRIES }
    }
}

impl Iterator for FromRight<'_> {
    type Item = Option<IpAddr>;

    fn next(&mut self) -> Option<Option<IpAddr>> {
        let line = match self.line.take() {
            Some(line) => line,
            None => self.lines.as_mut()?.next()?.as_bytes(),
        };
        let too_far = line.len().saturating_sub(self.bytes);
        let (_, near) = line.split_at(too_far);
        let comma = (self.reading.last_comma)(near);
        // An entry that is not seen whole is none: half of an address is another address.
        if self.entries == 0 || (comma.is_none() && too_far > 0) {
            self.lines = None;
            return Some(None);
        }
        self.entries -= 1;
        let entry = match comma {
            Some(comma) => {
                self.line = line.get(..too_far + comma);
                near.get(comma + 1..).unwrap_or_default()
            }
            None => near,
        };
        self.bytes = self.bytes.saturating_sub(entry.len() + 1);
        Some((self.reading.parse)(entry))
    }
}
