//! A gateway as a process. It ends with its handle, and with this process, however that ends.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use super::{SOON, example};
use crate::support::folder::Folder;

const ARGUMENTS: &str = "SLUICEGATE_GATEWAY";

/// Not a test by itself: the process that others start, which is the example's own.
#[test]
fn process() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(3);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let code = runtime.block_on(example::run(arguments.split('\n').map(str::to_owned)));
    std::process::exit(code.into());
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "gateway::child::process", "--nocapture"]).env(ARGUMENTS, arguments.join("\n"));
    command.env_remove("REDIS_URL").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a gateway says that does not come to serve. One that does is ended, without a code.
pub fn refused(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut child = command(arguments).spawn().expect("a process");
    // With its input closed the process would end by itself.
    let lifeline = child.stdin.take();
    let since = Instant::now();
    while child.try_wait().expect("its state").is_none() {
        if since.elapsed() > SOON {
            child.kill().expect("killed");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let Output { status, stdout, stderr } = child.wait_with_output().expect("its end");
    drop(lifeline);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

pub struct Gateway {
    /// Where clients come in: `127.0.0.1:1234`.
    pub public: String,
    pub admin: String,
    pub folder: Folder,
    log: Arc<Mutex<String>>,
    child: Child,
    _lifeline: Option<ChildStdin>,
}

impl Gateway {
    /// On free ports, with this policy, in memory unless the arguments say otherwise.
    pub fn start(policy: &str, arguments: &[&str]) -> Gateway {
        let folder = Folder::new();
        let file = folder.write("limits.toml", policy);
        let common = ["--config", &file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut child = command(&[&common, arguments].concat()).spawn().expect("a process");
        let log = Arc::new(Mutex::new(String::new()));
        let mut errors = BufReader::new(child.stderr.take().expect("its log"));
        let noted = Arc::clone(&log);
        thread::spawn(move || {
            let mut line = String::new();
            while errors.read_line(&mut line).is_ok_and(|read| read > 0) {
                noted.lock().expect("no panic").push_str(&std::mem::take(&mut line));
            }
        });
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut address = |before: &str| {
            let line = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with(before));
            let line = line.unwrap_or_else(|| panic!("no {before:?}: {}", log.lock().expect("no panic")));
            line[before.len()..].split('/').next().expect("an address").to_owned()
        };
        let (public, admin) = (address("gateway  http://"), address("admin    http://"));
        // Nobody reads the rest, and nothing must wait for it.
        thread::spawn(move || lines.for_each(drop));
        let _lifeline = child.stdin.take();
        Gateway { public, admin, folder, log, child, _lifeline }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.public)
    }

    pub fn admin(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    /// Puts another policy in the file's place.
    pub fn write(&self, policy: &str) {
        let new = self.folder.write("new", policy);
        std::fs::rename(new, self.folder.0.join("limits.toml")).expect("renamed");
    }

    pub fn log(&self) -> String {
        self.log.lock().expect("no panic").clone()
    }

    pub fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("its state")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
