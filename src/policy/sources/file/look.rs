//! Looks at a file.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read},
    path::Path,
    time::SystemTime,
};

use sha2::{Digest, Sha256};

use crate::policy::{Policy, SourceError};

/// The longest file that is read.
const LONGEST: u64 = 64 << 20;

/// What a file system says of a file without reading it. It is the file's at the end of all links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    File {
        length: u64,
        modified: Option<SystemTime>,
        identity: Identity,
    },
    /// There is none, or it cannot be seen.
    Absent(io::ErrorKind),
}

/// A file and its last change, also of its name or rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    #[cfg(unix)]
    unix: (u64, u64, i64, i64),
}

/// What was there at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) stamp: Stamp,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// The digest of a document.
    Read([u8; 32]),
    /// Why there is none.
    Unread(String),
}

impl Stamp {
    pub(super) fn of(path: &Path) -> Stamp {
        fs::metadata(path).as_ref().map_or_else(|error| Stamp::Absent(error.kind()), Stamp::from)
    }
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Stamp {
        #[cfg(unix)]
        let identity = {
            use std::os::unix::fs::MetadataExt;
            Identity { unix: (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()) }
        };
        #[cfg(not(unix))]
        let identity = Identity {};
        Stamp::File { length: metadata.len(), modified: metadata.modified().ok(), identity }
    }
}

impl Look {
    pub(super) fn at(path: &Path) -> Look {
        Look::with_text(path).0
    }

    /// Whether the content is the same, whatever the stamps say.
    pub(super) fn says_the_same(&self, other: &Look) -> bool {
        self.content == other.content
    }

    fn with_text(path: &Path) -> (Look, Result<Vec<u8>, String>) {
        let (stamp, read) = read(path);
        match read {
            Ok(text) => (Look { stamp, content: Content::Read(Sha256::digest(&text).into()) }, Ok(text)),
            Err(error) => (Look { stamp, content: Content::Unread(error.clone()) }, Err(error)),
        }
    }
}

/// What stands in a file, or why it cannot be read.
pub(in crate::policy) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    read(path).1
}

/// Reads the file, and says what was there.
pub(super) fn load(path: &Path) -> (Look, Result<Policy, SourceError>) {
    let (look, text) = Look::with_text(path);
    (look, Policy::of_read(path, text).map_err(SourceError::new))
}

fn read(path: &Path) -> (Stamp, Result<Vec<u8>, String>) {
    let cannot = |error: io::Error| format!("cannot be read: {error}");
    // Opening a pipe would wait for somebody to write into it.
    match fs::metadata(path) {
        Err(error) => return (Stamp::Absent(error.kind()), Err(cannot(error))),
        Ok(metadata) if !metadata.is_file() => return (Stamp::from(&metadata), Err("is not a file".into())),
        Ok(_) => {}
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return (Stamp::of(path), Err(cannot(error))),
    };
    // Of the file that is open, since another may have its name by now.
    let metadata = match file.metadata() {
        Ok(metadata) => metadata,
        Err(error) => return (Stamp::Absent(error.kind()), Err(cannot(error))),
    };
    let stamp = Stamp::from(&metadata);
    let too_long = || Err(format!("is longer than {} MiB", LONGEST >> 20));
    if metadata.len() > LONGEST {
        return (stamp, too_long());
    }
    let mut text = Vec::new();
    let read = match (&file).take(LONGEST + 1).read_to_end(&mut text) {
        Err(error) => Err(cannot(error)),
        // It has grown meanwhile.
        Ok(_) if text.len() as u64 > LONGEST => too_long(),
        Ok(_) => Ok(text),
    };
    (stamp, read)
}
