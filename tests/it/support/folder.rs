//! A folder that goes with the test.

use std::path::PathBuf;

use super::stores::namespace;

pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        let path = std::env::temp_dir().join(namespace());
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// Writes a file and says where it is.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("a path").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
