use tokio::sync::watch;

use super::{Pipe, lock};

impl Pipe {
    /// Takes replies that nobody asked for from now on, as a subscriber gets them: each is told of, until the end of the pipe.
    pub(in super::super) fn hear(&self) -> watch::Receiver<()> {
        let (heard, hears) = watch::channel(());
        let mut queue = lock(&self.0);
        if queue.ended.is_none() {
            queue.heard = Some(heard);
        }
        hears
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_subscriber_hears_what_nobody_asked_for_and_the_end() {
        let (near, mut far) = duplex(1 << 16);
        let (pipe, driver) = Pipe::new(near);
        tokio::spawn(driver);
        let mut hears = pipe.hear();
        for _ in 0..2 {
            far.write_all(b"*1\r\n$7\r\nmessage\r\n").await.expect("room");
            hears.changed().await.expect("told");
        }
        far.write_all(b"-ERR max number of clients reached\r\n").await.expect("room");
        hears.changed().await.expect_err("the end");
        let error = pipe.send(&redis::cmd("PING")).await.expect_err("refused");
        assert_eq!(error.detail(), Some("max number of clients reached"));
        pipe.hear().changed().await.expect_err("it has ended");
    }
}
