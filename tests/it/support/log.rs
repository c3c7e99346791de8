//! What was logged.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
};

use tracing_subscriber::fmt::MakeWriter;

/// What is logged by this thread until the guard is dropped.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    #[must_use]
    pub fn begin() -> (Log, tracing::subscriber::DefaultGuard) {
        // With one subscriber alone, a line that another thread comes to first is taken for one that nobody listens to.
        static ANOTHER: OnceLock<tracing::Dispatch> = OnceLock::new();
        ANOTHER.get_or_init(|| tracing_subscriber::fmt().with_writer(io::sink).finish().into());
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("text")
    }
}

/// What is logged while the closure runs.
pub fn logged(closure: impl FnOnce()) -> String {
    let (log, _guard) = Log::begin();
    closure();
    log.text()
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}
