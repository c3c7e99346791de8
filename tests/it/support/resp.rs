//! As much of the Redis protocol as a proxy needs: where one message ends.

/// The length of the first whole message, if all of it is there.
pub fn length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'$' | b'=' => match number()? {
            ..0 => Some(line),
            text => {
                let end = line + text as usize + 2;
                (bytes.len() >= end).then_some(end)
            }
        },
        b'*' | b'>' | b'~' => {
            let mut end = line;
            for _ in 0..number()?.max(0) {
                end += length(bytes.get(end..)?)?;
            }
            Some(end)
        }
        b'%' => {
            let mut end = line;
            for _ in 0..number()?.max(0) * 2 {
                end += length(bytes.get(end..)?)?;
            }
            Some(end)
        }
        _ => Some(line),
    }
}

/// Whether it is a command that may charge: a call of a script, a function or a module.
pub fn decides(command: &[u8]) -> bool {
    let name = command.split(|byte| *byte == b'\n').nth(2).unwrap_or_default();
    [&b"EVAL"[..], b"EVALSHA", b"FCALL", b"CL.THROTTLE"].iter().any(|verb| name.trim_ascii().eq_ignore_ascii_case(verb))
}

#[test]
fn whole_messages_are_told_from_parts() {
    for message in
        [&b":7\r\n"[..], b"$3\r\nabc\r\n", b"$-1\r\n", b"*2\r\n:1\r\n*1\r\n$0\r\n\r\n", b"*0\r\n", b"-ERR x\r\n"]
    {
        for cut in 0..message.len() {
            assert_eq!(length(&message[..cut]), None, "{:?}", &message[..cut]);
        }
        assert_eq!(length(&[message, b"+OK\r\n"].concat()), Some(message.len()));
    }
    assert!(decides(b"*2\r\n$7\r\nEVALSHA\r\n$1\r\nx\r\n"));
    assert!(!decides(b"*1\r\n$4\r\nPING\r\n"));
}
