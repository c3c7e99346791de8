//! Which of the 16,384 slots of a Cluster a name falls into.

/// How many slots a Cluster has.
pub(super) const SLOTS: usize = 16_384;

/// The slot of the name that these pieces make.
///
/// Between the first `{` and the next `}` stands the hash tag: where it holds anything, it alone decides, so that names with
/// the same tag share a slot.
pub(super) fn of(name: [&[u8]; 3]) -> u16 {
    let bytes = || name.into_iter().flatten().copied();
    let tag = bytes().position(|byte| byte == b'{').and_then(|open| {
        let from = open + 1;
        let length = bytes().skip(from).position(|byte| byte == b'}')?;
        (length > 0).then_some((from, length))
    });
    let sum = match tag {
        Some((from, length)) => crc16(bytes().skip(from).take(length)),
        None => crc16(bytes()),
    };
    sum % SLOTS as u16
}

/// CRC-16/XMODEM.
#[allow(clippy::indexing_slicing)]
fn crc16(bytes: impl Iterator<Item = u8>) -> u16 {
    const TABLE: [u16; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut sum = (byte as u16) << 8;
            let mut bit = 0;
            while bit < 8 {
                sum = if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
                bit += 1;
            }
            table[byte] = sum;
            byte += 1;
        }
        table
    };
    bytes.fold(0, |sum, byte| sum << 8 ^ TABLE[usize::from((sum >> 8) as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_one_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789".iter().copied()), 0x31c3);
        assert_eq!(of([b"", b"foo", b""]), 12_182);
    }

    #[test]
    fn the_tag_alone_decides_where_there_is_one() {
        let slot = |name: &[u8]| of([name, b"", b""]);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        // An empty tag is none, and nothing after it is one.
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
        assert_eq!(of([b"a{", b"b", b"}c"]), slot(b"b"));
        assert_eq!(of([b"a", b"", b"{b}"]), slot(b"b"));
    }
}
