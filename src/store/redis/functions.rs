//! Scripts as Redis Functions: each in a library of its own, which the server keeps, saves and replicates.
//!
//! The name of a library carries a version of the frame around the script and the digest of the script, so two releases run
//! side by side: none replaces what another has loaded. That a name is taken says nothing about what stands under it, since
//! whoever shares the server may load libraries. So before a node calls a function for the first time it loads it, and where
//! the name is taken compares the code.

use std::{
    collections::HashSet,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use redis::{RedisError, Value};

use super::{connections::Live, failure, job::Call, node::Node, scripts::Script};
use crate::{
    error::{StoreError, StoreErrorKind},
    observer::StoreEvent,
};

/// Beyond this the numbers of functions are forgotten, and each is looked at again.
const MOST: usize = 1_024;

/// What is known of the functions of one server.
#[derive(Debug, Default)]
pub(super) struct Functions {
    /// It has none, or none for us: scripts are sent as such.
    barred: AtomicBool,
    /// The numbers of those that are there and ours.
    ready: RwLock<HashSet<u32, foldhash::fast::RandomState>>,
}

impl Functions {
    pub(super) fn are_barred(&self) -> bool {
        self.barred.load(Ordering::Relaxed)
    }

    fn is_ready(&self, script: &Script) -> bool {
        self.ready.read().unwrap_or_else(PoisonError::into_inner).contains(&script.number)
    }

    fn set_ready(&self, script: &Script, is_ready: bool) {
        let mut ready = self.ready.write().unwrap_or_else(PoisonError::into_inner);
        if ready.len() >= MOST {
            ready.clear();
        }
        if is_ready {
            ready.insert(script.number);
        } else {
            ready.remove(&script.number);
        }
    }
}

/// What the server said to a function.
enum Called {
    Reply(Value),
    /// It is not there.
    Missing,
    /// The server has no functions, or none for us.
    Barred,
}

impl Node {
    /// Calls the script's function. Loads it where it is missing; sends the script where that cannot be done.
    pub(super) async fn call_function(&self, mut call: Call<'_>) -> Result<Value, StoreError> {
        let script = call.script;
        // A function that is missing ran nothing, so it may be called again. It may be deleted in between: once is enough.
        for _ in 0..2 {
            let ready = self.functions.is_ready(script) || self.load(call.live, script).await?;
            let called = if ready { self.call_ready(&mut call).await? } else { Called::Missing };
            match called {
                Called::Reply(reply) => return Ok(reply),
                Called::Missing => self.functions.set_ready(script, false),
                Called::Barred => self.bar(),
            }
            if self.functions.are_barred() {
                break;
            }
        }
        self.call_script(call).await
    }

    async fn call_ready(&self, call: &mut Call<'_>) -> Result<Called, StoreError> {
        let command = call.command("FCALL", call.script.function(call.job.is_peek()));
        match call.live.send(&command).await {
            Ok(reply) => Ok(Called::Reply(reply)),
            Err(error) if bars(&error) => Ok(Called::Barred),
            Err(error) => self.conclude(call.live, &error, Some(call.script)).map(|()| Called::Missing),
        }
    }

    /// Sees to it that the function is there and ours. `false` where it is not, which is no error.
    async fn load(&self, live: &mut Live, script: &Script) -> Result<bool, StoreError> {
        let mut command = redis::cmd("FUNCTION");
        command.arg("LOAD").arg(script.library());
        let loaded = match live.send(&command).await {
            Ok(_) => {
                self.observers.tell(&StoreEvent::ScriptSent);
                true
            }
            Err(error) if bars(&error) => {
                self.bar();
                false
            }
            Err(error) if says(&error, "Library ") => self.compare(live, script).await?,
            Err(error) if says(&error, "Function ") => return Err(tampered(live, script)),
            Err(error) => self.conclude(live, &error, None).map(|()| false)?,
        };
        if loaded {
            self.functions.set_ready(script, true);
        }
        Ok(loaded)
    }

    /// Whether the library under the script's name is ours. `false` if there is none by now.
    async fn compare(&self, live: &mut Live, script: &Script) -> Result<bool, StoreError> {
        let mut command = redis::cmd("FUNCTION");
        command.arg("LIST").arg("LIBRARYNAME").arg(script.library_name()).arg("WITHCODE");
        let list = match live.send(&command).await {
            Ok(list) => list,
            Err(error) if bars(&error) => {
                self.bar();
                return Ok(false);
            }
            Err(error) => return self.conclude(live, &error, None).map(|()| false),
        };
        let Value::Array(libraries) = &list else { return Ok(false) };
        match libraries.first().map(code_of) {
            None => Ok(false),
            Some(code) if code == Some(script.library().as_bytes()) => Ok(true),
            Some(_) => Err(tampered(live, script)),
        }
    }

    fn bar(&self) {
        if !self.functions.barred.swap(true, Ordering::Relaxed) {
            self.observers.tell(&StoreEvent::NoFunctions);
        }
    }
}

/// Whether a server that answers so has no functions, or none for this user.
fn bars(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    match error.code() {
        Some("NOPERM") => detail.contains("'fcall") || detail.contains("'function"),
        Some("ERR") => failure::is_unknown_command(error),
        _ => false,
    }
}

/// Whether the server answers that the name of this thing is taken.
fn says(error: &RedisError, thing: &str) -> bool {
    let detail = error.detail().unwrap_or_default();
    error.code() == Some("ERR") && detail.starts_with(thing) && detail.contains("already exists")
}

/// Other code stands under the name of the library, or another library has the name of the function.
fn tampered(live: &Live, script: &Script) -> StoreError {
    live.answered();
    let text = format!(
        "the server has other code under the name {}, which only sluicegate gives: somebody has put it there; find out who, \
        then delete it with FUNCTION DELETE",
        script.library_name()
    );
    StoreError::new(StoreErrorKind::Permanent, text)
}

/// The code of one library in a reply to `FUNCTION LIST`.
fn code_of(library: &Value) -> Option<&[u8]> {
    let is_code = |name: &Value| matches!(name, Value::BulkString(name) if name == b"library_code");
    let code = match library {
        Value::Array(fields) => fields.chunks_exact(2).find(|pair| pair.first().is_some_and(is_code))?.last()?,
        Value::Map(fields) => fields.iter().find_map(|(name, code)| is_code(name).then_some(code))?,
        _ => return None,
    };
    match code {
        Value::BulkString(code) => Some(code),
        _ => None,
    }
}
