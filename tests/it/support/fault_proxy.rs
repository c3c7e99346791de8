//! A proxy in front of a server that does to the way between what networks do. Faults are switched while it runs.
//!
//! It lives on a thread and a runtime of its own, so that neither its work nor its tasks are counted as the client's.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, oneshot, watch},
    time::{Instant, sleep, sleep_until},
};

use super::{dice::Dice, resp};

/// What becomes of bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// They pass.
    #[default]
    Open,
    /// They are taken and held back, and pass when the way is open again: as after lost packets.
    Held,
    /// They are taken and gone. A connection that lost any loses all that follow, also after healing: nobody knows it any more.
    Lost,
    /// They are not even read.
    Stopped,
}

#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub to_server: Way,
    pub to_client: Way,
    /// Later by so much, each way.
    pub latency: Duration,
    /// And by up to so much more.
    pub jitter: Duration,
    /// Bytes pass one by one, with this between.
    pub slow: Duration,
    /// Of a thousand answers to decisions so many are cut off: the server gave it, the client sees its connection close.
    pub cut: u64,
    /// New connections are reset at once.
    pub refuse: bool,
    /// How often all connections were reset.
    resets: u64,
}

/// What has passed so far.
#[derive(Debug, Default)]
pub struct Counts {
    pub connections: AtomicU64,
    pub open: AtomicU64,
    pub bytes_up: AtomicU64,
    pub bytes_down: AtomicU64,
    /// Commands that reached the server, and of these those that decide.
    pub commands: AtomicU64,
    pub decisions: AtomicU64,
    pub replies: AtomicU64,
    /// Answers to decisions that were cut off by chance, and those that were under way on the same connection then.
    pub cut: AtomicU64,
    pub cut_along: AtomicU64,
}

pub struct FaultProxy {
    pub port: u16,
    pub counts: Arc<Counts>,
    faults: watch::Sender<Faults>,
    /// Its thread ends when this goes.
    _end: oneshot::Sender<()>,
}

impl FaultProxy {
    pub fn start(server: u16, seed: u64) -> FaultProxy {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("not blocking");
        let port = listener.local_addr().expect("its address").port();
        let (faults, switched) = watch::channel(Faults::default());
        let (end, ended) = oneshot::channel::<()>();
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    () = accept(listener, server, seed, switched, counted) => {}
                    _ = ended => {}
                }
            });
        });
        FaultProxy { port, counts, faults, _end: end }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn set(&self, change: impl FnOnce(&mut Faults)) {
        self.faults.send_modify(change);
    }

    /// Everything passes again.
    pub fn heal(&self) {
        self.set(|faults| *faults = Faults { resets: faults.resets, ..Faults::default() });
    }

    /// Resets every connection there is.
    pub fn reset(&self) {
        self.set(|faults| faults.resets += 1);
    }
}

impl Counts {
    pub fn of(count: &AtomicU64) -> u64 {
        count.load(Ordering::SeqCst)
    }
}

fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::SeqCst);
}

async fn accept(listener: TcpListener, server: u16, seed: u64, faults: watch::Receiver<Faults>, counts: Arc<Counts>) {
    while let Ok((client, _)) = listener.accept().await {
        if faults.borrow().refuse {
            let _ = client.set_zero_linger();
            continue;
        }
        count(&counts.connections, 1);
        let number = Counts::of(&counts.connections);
        tokio::spawn(connection(client, server, seed ^ (number << 32), faults.clone(), Arc::clone(&counts)));
    }
}

/// One connection: what the server still owes an answer to, in order, and whether that decides.
struct Owed {
    commands: Mutex<VecDeque<bool>>,
    /// The client's side is closed; no more commands pass.
    closing: AtomicBool,
    /// The client has closed it too.
    closed: Notify,
}

/// Counts a connection as open until it is dropped.
struct Open(Arc<Counts>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn connection(client: TcpStream, server: u16, seed: u64, faults: watch::Receiver<Faults>, counts: Arc<Counts>) {
    count(&counts.open, 1);
    let _open = Open(Arc::clone(&counts));
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let resets = faults.borrow().resets;
    let owed = Owed { commands: Mutex::default(), closing: false.into(), closed: Notify::new() };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let pipe = |up, from, to, seed| Pipe {
        up,
        from,
        to,
        owed: &owed,
        counts: &counts,
        faults: faults.clone(),
        dice: Dice::new(seed),
        arrived: Vec::new(),
        deaf: false,
    };
    let (mut up, mut down) = (pipe(true, from_client, to_server, seed), pipe(false, from_server, to_client, !seed));
    let mut switched = faults.clone();
    tokio::select! {
        () = up.run() => {}
        () = down.run() => {}
        _ = switched.wait_for(|faults| faults.resets != resets) => {
            let _ = (up.from.as_ref().set_zero_linger(), down.from.as_ref().set_zero_linger());
        }
    }
}

/// One direction of a connection.
struct Pipe<'a> {
    up: bool,
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    owed: &'a Owed,
    counts: &'a Counts,
    faults: watch::Receiver<Faults>,
    dice: Dice,
    arrived: Vec<u8>,
    /// It has lost bytes, and what follows makes no sense without them.
    deaf: bool,
}

impl Pipe<'_> {
    async fn run(&mut self) {
        // Whole messages, and when they pass.
        let mut waiting = VecDeque::<(Instant, Vec<u8>)>::new();
        loop {
            let faults = self.faults.borrow_and_update().clone();
            let way = if self.up { faults.to_server } else { faults.to_client };
            // What is due passes without a timer, whose grain would add a millisecond or two each way, and not always as much.
            let due = waiting.front().map_or_else(Instant::now, |(due, _)| *due);
            if way == Way::Open
                && due <= Instant::now()
                && let Some((_, message)) = waiting.pop_front()
            {
                if !self.pass(&message, &faults).await {
                    return;
                }
                continue;
            }
            tokio::select! {
                biased;
                changed = self.faults.changed() => if changed.is_err() { return },
                () = sleep_until(due), if way == Way::Open && !waiting.is_empty() => {}
                read = self.from.read_buf(&mut self.arrived), if way != Way::Stopped => {
                    if !matches!(read, Ok(1..)) { return self.end().await }
                    while let Some(message) = self.message() {
                        if self.deaf || way == Way::Lost {
                            self.deaf = true;
                        } else if !self.up && self.is_cut(&faults) {
                            return self.cut(waiting, &faults).await;
                        } else {
                            let later = faults.latency + self.dice.up_to(faults.jitter);
                            let after = waiting.back().map_or(Instant::now(), |(due, _)| *due);
                            waiting.push_back((after.max(Instant::now() + later), message));
                        }
                    }
                }
            }
        }
    }

    /// The next whole message that has arrived.
    fn message(&mut self) -> Option<Vec<u8>> {
        let length = resp::length(&self.arrived)?;
        Some(self.arrived.drain(..length).collect())
    }

    /// This side has closed. A connection that is being cut off ends when the server has answered.
    async fn end(&self) {
        if self.up && self.owed.closing.load(Ordering::SeqCst) {
            self.owed.closed.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// Forwards a message; false if that cannot be.
    async fn pass(&mut self, message: &[u8], faults: &Faults) -> bool {
        if self.up {
            let mut owed = self.owed.commands.lock().expect("no panic");
            if self.owed.closing.load(Ordering::SeqCst) {
                return true;
            }
            let decides = resp::decides(message);
            owed.push_back(decides);
            count(&self.counts.commands, 1);
            count(&self.counts.decisions, usize::from(decides));
            count(&self.counts.bytes_up, message.len());
        } else {
            count(&self.counts.replies, 1);
            count(&self.counts.bytes_down, message.len());
        }
        if faults.slow == Duration::ZERO {
            return self.to.write_all(message).await.is_ok();
        }
        for byte in message {
            if self.to.write_all(&[*byte]).await.is_err() {
                return false;
            }
            sleep(faults.slow).await;
        }
        true
    }

    /// Whether this answer is to be cut off.
    fn is_cut(&mut self, faults: &Faults) -> bool {
        let decides = self.owed.commands.lock().expect("no panic").pop_front().unwrap_or(false);
        let cut = decides && self.dice.per_mille(faults.cut);
        count(&self.counts.cut, usize::from(cut));
        cut
    }

    /// What came before passes, then the client sees the end. Meanwhile the server answers what has reached it.
    async fn cut(&mut self, waiting: VecDeque<(Instant, Vec<u8>)>, faults: &Faults) {
        self.owed.closing.store(true, Ordering::SeqCst);
        for (_, message) in waiting {
            if !self.pass(&message, faults).await {
                break;
            }
        }
        let _ = self.to.shutdown().await;
        loop {
            while self.message().is_some() {
                let decided = self.owed.commands.lock().expect("no panic").pop_front();
                count(&self.counts.cut_along, usize::from(decided == Some(true)));
            }
            let owes = !self.owed.commands.lock().expect("no panic").is_empty();
            if !owes || !matches!(self.from.read_buf(&mut self.arrived).await, Ok(1..)) {
                break;
            }
        }
        // Closing before that would be a reset, and what has passed might be lost.
        self.owed.closed.notified().await;
    }
}
