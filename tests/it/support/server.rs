//! Real servers on free loopback ports. They end with the test process, however it ends.

use std::{
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

/// The versions that everything is tested on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Redis6,
    Redis7,
    Valkey9,
}

pub const VERSIONS: [Version; 3] = [Version::Redis6, Version::Redis7, Version::Valkey9];

impl Version {
    fn binary(self) -> String {
        let name = match self {
            Version::Redis6 => "SLUICEGATE_REDIS_6",
            Version::Redis7 => "SLUICEGATE_REDIS_7",
            Version::Valkey9 => "SLUICEGATE_VALKEY_9",
        };
        std::env::var(name).unwrap_or_else(|_| panic!("{name} names no server: run the tests with tests/run"))
    }

    /// A server of this version that all tests share. Give each test a namespace of its own.
    pub fn shared(self) -> &'static Server {
        static SERVERS: [OnceLock<Server>; 3] = [const { OnceLock::new() }; 3];
        SERVERS[self as usize].get_or_init(|| Server::start(self))
    }
}

pub struct Server {
    pub port: u16,
    pub pid: u32,
    version: Version,
    shell: Child,
    /// The shell ends the server when this closes.
    _lifeline: Option<ChildStdin>,
}

impl Server {
    pub fn start(version: Version) -> Server {
        Server::start_on(version, free_port(), &[])
    }

    /// A server whose clock is as far off as the file says: `+3600s`. Only the Valkey binary bears it.
    pub fn start_with_clock(offset: &Path) -> Server {
        let library = std::env::var("SLUICEGATE_FAKETIME").expect("SLUICEGATE_FAKETIME: run the tests with tests/run");
        let offset = offset.to_str().expect("a path");
        let environment =
            [("LD_PRELOAD", library.as_str()), ("FAKETIME_TIMESTAMP_FILE", offset), ("FAKETIME_NO_CACHE", "1")];
        Server::start_in(Version::Valkey9, free_port(), &[], &environment)
    }

    /// A server with more settings, on a given port.
    pub fn start_on(version: Version, port: u16, more: &[&str]) -> Server {
        Server::start_in(version, port, more, &[])
    }

    fn start_in(version: Version, port: u16, more: &[&str], environment: &[(&str, &str)]) -> Server {
        let port_text = port.to_string();
        let arguments = ["--port", &port_text, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "."];
        Server::spawn(version, port, &[&arguments[..], more].concat(), environment)
    }

    /// The binary with these arguments, which make it listen on `port`.
    pub fn spawn(version: Version, port: u16, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        // In a folder of its own: replicas write what they were sent, and any server would read it at its start.
        let script = r#"d=$(mktemp -d); cd "$d"; "$@" >/dev/null 2>&1 & echo $!; cat >/dev/null; kill -CONT $! 2>/dev/null; kill -9 $! 2>/dev/null; rm -rf "$d""#;
        let mut shell = Command::new("sh")
            .args(["-c", script, "sh", &version.binary()])
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut pid = String::new();
        BufReader::new(shell.stdout.take().expect("its output")).read_line(&mut pid).expect("the server's id");
        let server =
            Server { port, pid: pid.trim().parse().expect("a number"), version, _lifeline: shell.stdin.take(), shell };
        server.wait_until_up();
        server
    }

    fn wait_until_up(&self) {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let since = Instant::now();
        while TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_err() {
            assert!(since.elapsed() < Duration::from_secs(20), "{:?} does not listen on {}", self.version, self.port);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A connection to look into the server with.
    pub async fn connection(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.url()).expect("an address");
        client.get_multiplexed_async_connection().await.expect("a connection")
    }

    /// Sends the process a signal: `STOP`, `CONT`, `KILL`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.pid.to_string()]).status();
        assert!(sent.expect("kill runs").success(), "no process {}", self.pid);
    }

    /// Ends it and waits until it is gone.
    pub fn stop(mut self) -> u16 {
        self.end();
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        while TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_ok() {
            std::thread::yield_now();
        }
        self.port
    }

    /// Another may listen on its port by now.
    fn end(&mut self) {
        self._lifeline = None;
        let _ = self.shell.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A port that nobody listens on, nor on the one ten thousand above, where nodes of a Cluster speak with each other. Each call gives
/// another.
pub fn free_port() -> u16 {
    // Below those that the system gives to whoever asks for any: between this look and the server's own, somebody might.
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 10_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that began one after the other do not look in the same place.
    let begin = u16::try_from(std::process::id().wrapping_mul(7_919) % u32::from(COUNT)).expect("small");
    let next = || FIRST + (begin + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    std::iter::repeat_with(next).find(|port| is_free(*port) && is_free(port + 10_000)).expect("some port")
}
