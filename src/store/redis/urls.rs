use std::fmt;

/// The address of a server, or several of one Cluster or of Sentinels.
///
/// ```
/// use sluicegate::store::Urls;
///
/// let one: Urls = "redis://127.0.0.1:6379".into();
/// let several: Urls = ["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"].into();
/// ```
#[derive(Clone)]
pub struct Urls(pub(super) Vec<String>);

impl From<&str> for Urls {
    fn from(url: &str) -> Urls {
        Urls(vec![url.into()])
    }
}

impl From<String> for Urls {
    fn from(url: String) -> Urls {
        Urls(vec![url])
    }
}

impl From<&String> for Urls {
    fn from(url: &String) -> Urls {
        Urls(vec![url.clone()])
    }
}

impl<U: Into<String>, const N: usize> From<[U; N]> for Urls {
    fn from(urls: [U; N]) -> Urls {
        Urls(urls.into_iter().map(Into::into).collect())
    }
}

impl<U: Into<String>> From<Vec<U>> for Urls {
    fn from(urls: Vec<U>) -> Urls {
        Urls(urls.into_iter().map(Into::into).collect())
    }
}

/// Shows no address and no password.
impl fmt::Debug for Urls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Urls({})", self.0.len())
    }
}
