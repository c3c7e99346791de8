mod look;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

pub(in crate::policy) use self::look::read_file;
use self::look::{Look, Stamp};
use super::{Loading, PolicySource, SourceError};
use crate::policy::Policy;

/// How often the file is looked at.
const EVERY: Duration = Duration::from_millis(250);
/// How far apart two looks are that must see the same: whoever writes it may not be done.
const APART: Duration = Duration::from_millis(100);
/// How long a file that cannot be used must stay so before that is told.
const STAYS: Duration = Duration::from_millis(600);
/// How long the same stamp may hide another content: no file system's times are coarser.
const DOUBT: Duration = Duration::from_millis(2_500);

/// A policy in a file, TOML or JSON by the end of its name.
///
/// ```no_run
/// use sluicegate::{Limiter, MemoryStore, policy::{PolicyFile, PolicySource}};
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let source = PolicyFile::new("limits.toml");
/// let limiter = Limiter::builder(MemoryStore::new()).policy(source.load().await?).build()?;
/// let following = limiter.follow(source);             // until it is dropped
/// # Ok(())
/// # }
/// ```
///
/// A change holds within two seconds, however it is made: another file renamed to this name, an editor that truncates and writes, a link
/// that leads elsewhere, such as the `..data` of a Kubernetes volume. Files that are being written are waited for: two looks a tenth of a
/// second apart must see the same, and what cannot be used must stay so for more than half a second before it is an error. A writer that
/// pauses longer in the middle is safe only if it renames; nobody can tell half a list of rules from a whole one.
///
/// A file that is gone, or cannot be used, is told once; the last good policy stays, and the next good one holds.
///
/// # Why it looks, and is not told
///
/// Four times a second it asks for the file's device, inode, size and times, through all links, and reads the file where they have
/// changed, or are so new that another content may have the same. What systems tell of changes is different on each of them, does not
/// tell of files on other machines or in some containers, and must be asked for anew for each folder and link on the way after each
/// change of them. Four calls a second cost nothing that could be measured, and see every kind of change.
///
/// A clone looks on its own: give each limiter one.
#[derive(Debug)]
pub struct PolicyFile {
    path: Arc<Path>,
    seen: Mutex<Option<Seen>>,
}

/// What was loaded last.
#[derive(Clone, Debug)]
struct Seen {
    look: Look,
    /// Until when its stamp may hide another content.
    doubt: Instant,
}

impl PolicyFile {
    /// The policy in this file. It is not looked at yet.
    pub fn new(path: impl Into<PathBuf>) -> PolicyFile {
        PolicyFile { path: path.into().into(), seen: Mutex::new(None) }
    }

    fn seen(&self) -> MutexGuard<'_, Option<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` where it may wait for a disk.
    async fn apart<T: Send + 'static>(&self, work: fn(&Path) -> T) -> Option<T> {
        let path = Arc::clone(&self.path);
        // It fails only when the runtime ends.
        tokio::task::spawn_blocking(move || work(&path)).await.ok()
    }

    /// Waits until the file is another than the one that was loaded, and no longer being written.
    async fn wait(&self) {
        loop {
            sleep(EVERY).await;
            let Some(stamp) = self.apart(Stamp::of).await else { continue };
            if self.is_known(&stamp) {
                continue;
            }
            let Some(look) = self.settled().await else { continue };
            let mut seen = self.seen();
            match &mut *seen {
                Some(seen) if seen.look.says_the_same(&look) => {
                    if seen.look.stamp != look.stamp {
                        seen.doubt = Instant::now() + DOUBT;
                    }
                    seen.look = look;
                }
                _ => return,
            }
        }
    }

    /// Whether the stamp says that nothing has changed.
    fn is_known(&self, stamp: &Stamp) -> bool {
        self.seen().as_ref().is_some_and(|seen| seen.look.stamp == *stamp && Instant::now() >= seen.doubt)
    }

    /// What is there once it stays: for a moment if it can be used, and for longer if not.
    async fn settled(&self) -> Option<Look> {
        let mut look = self.apart(Look::at).await?;
        let mut since = Instant::now();
        let mut is_bad = false;
        loop {
            // What is known already has settled.
            if self.seen().as_ref().is_some_and(|seen| seen.look.says_the_same(&look)) {
                return Some(look);
            }
            sleep(APART).await;
            let mut next = self.apart(Look::at).await?;
            if next != look {
                (look, since, is_bad) = (next, Instant::now(), false);
                continue;
            }
            if !is_bad {
                let policy;
                (next, policy) = self.apart(look::load).await?;
                if next == look && policy.is_ok() {
                    return Some(look);
                }
                is_bad = next == look;
                look = next;
            }
            if is_bad && since.elapsed() >= STAYS {
                return Some(look);
            }
        }
    }
}

impl PolicySource for PolicyFile {
    fn load(&self) -> Loading<'_, Result<Policy, SourceError>> {
        Box::pin(async {
            let Some((look, policy)) = self.apart(look::load).await else {
                return Err(SourceError::new("the runtime ends"));
            };
            let mut seen = self.seen();
            let same = seen.as_ref().filter(|seen| seen.look.stamp == look.stamp).map(|seen| seen.doubt);
            *seen = Some(Seen { look, doubt: same.unwrap_or_else(|| Instant::now() + DOUBT) });
            policy
        })
    }

    fn changed(&self) -> Loading<'_, ()> {
        Box::pin(self.wait())
    }
}

impl Clone for PolicyFile {
    fn clone(&self) -> PolicyFile {
        PolicyFile { path: Arc::clone(&self.path), seen: Mutex::new(self.seen().clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where times are coarse, another content may come with the same stamp.
    #[tokio::test(start_paused = true)]
    async fn a_stamp_is_believed_once_it_is_old() {
        let path = Path::new("Cargo.toml");
        let file = PolicyFile::new(path);
        file.load().await.expect_err("no policy, but a file");
        assert!(!file.is_known(&Stamp::of(path)));
        tokio::time::advance(DOUBT).await;
        assert!(file.is_known(&Stamp::of(path)) && !file.is_known(&Stamp::of(Path::new("README.md"))));
    }
}
