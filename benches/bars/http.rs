//! What a request costs a web server with a limiter in front of it.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Stdio},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    app::{SERVE, USER},
    drive::Dice,
    machine::{CLIENT_CORE, SERVER_CORE, block_on, cpu_nanos, on_core, pinned},
    report::{Bar, Pair, ROUNDS, Table},
    server::Server,
};

const CONNECTIONS: usize = 64;
const REQUESTS: usize = 60;
const USERS: usize = 10_000;
const APPS: [&str; 5] = ["bare", "memory", "floor", "redis", "silent"];

pub fn run(table: &mut Table) {
    let server = Server::start();
    on_core(SERVER_CORE, || {
        block_on(async {
            let mut apps = Vec::new();
            for which in APPS {
                let mut app = App::start(which, &server).await;
                app.micros_per_request().await;
                apps.push((app, Vec::new()));
            }
            for round in 0..5 * ROUNDS {
                // Whoever comes first in one round comes last in the next.
                for turn in 0..APPS.len() {
                    let (app, spent) = &mut apps[if round % 2 == 0 { turn } else { APPS.len() - 1 - turn }];
                    spent.push(app.micros_per_request().await);
                }
            }
            let [bare, memory, floor, redis, silent] = [0, 1, 2, 3, 4].map(|app| apps[app].1.as_slice());
            let mut row = |name: &str, ours, reference, bar| {
                table.ratio(format!("http: {name}"), Pair { ours, reference, unit: "us" }, bar);
            };
            row("memory, server CPU / bare axum", memory, bare, Bar::AtMost(1.25));
            row("Redis, server CPU / floor behind axum", redis, floor, Bar::AtMost(1.1));
            row("Redis, server CPU / floor behind axum that writes no headers", redis, silent, Bar::None);
            row("floor behind axum, server CPU / bare axum", floor, bare, Bar::None);
        });
    });
}

/// A web server in a process of its own, and the connections to it.
struct App {
    child: Child,
    /// The child ends when this closes.
    lifeline: Option<ChildStdin>,
    connections: Vec<Connection>,
}

impl App {
    async fn start(which: &str, server: &Server) -> App {
        let binary = std::env::current_exe().expect("this binary");
        let mut child = pinned(binary.to_str().expect("a plain path"), CLIENT_CORE)
            .args([SERVE, which, &server.url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let lifeline = child.stdin.take();
        let mut address = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut address).expect("its address");
        let mut connections = Vec::new();
        for number in 0..CONNECTIONS {
            let stream = TcpStream::connect(address.trim()).await.expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            connections.push(Connection { stream, read: Vec::new(), dice: Dice::new(number) });
        }
        App { child, lifeline, connections }
    }

    async fn micros_per_request(&mut self) -> f64 {
        // A client that sleeps is woken by the server, on the server's time, and the slower server wakes it the more often: a
        // quarter of what a limiter seemed to cost was that. So this one stays awake.
        let awake = tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        let before = cpu_nanos(self.child.id());
        let tasks: Vec<_> =
            self.connections.drain(..).map(|connection| tokio::spawn(connection.use_up(REQUESTS))).collect();
        for task in tasks {
            self.connections.push(task.await.expect("responses"));
        }
        let spent = cpu_nanos(self.child.id()) - before;
        awake.abort();
        spent / 1_000.0 / (CONNECTIONS * REQUESTS) as f64
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.lifeline = None;
        let _ = self.child.wait();
    }
}

/// A client that knows as little of HTTP as it can, so that it is not what the server waits for.
struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    dice: Dice,
}

impl Connection {
    async fn use_up(mut self, requests: usize) -> Connection {
        for _ in 0..requests {
            let user = self.dice.below(USERS);
            let request = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{USER}: customer-{user:010}\r\n\r\n");
            self.stream.write_all(request.as_bytes()).await.expect("sent");
            self.response().await;
        }
        self
    }

    async fn response(&mut self) {
        self.read.clear();
        while !self.read.ends_with(b"\r\n\r\nhello") {
            assert!(self.stream.read_buf(&mut self.read).await.expect("read") > 0, "the server hung up");
        }
        assert!(self.read.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&self.read));
    }
}
