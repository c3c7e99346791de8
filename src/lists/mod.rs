//! Who is always let through, and who never is.

mod entries;
mod nets;

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU8, Ordering},
    },
};

pub(crate) use entries::Mark;
use entries::{ALLOW, DENY, Entries};

use crate::{
    error::BuildError,
    key::{Found, IntoKey, Ip, Key, Network},
};

/// More is a mistake, and would take hundreds of megabytes.
const MOST: usize = 1_000_000;

/// An allow list and a deny list, by key and by subnet. Clones are one; what is changed through any of them holds from the next
/// request on.
///
/// ```
/// use sluicegate::{key, Limiter, Lists, MemoryStore, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), sluicegate::BuildError> {
/// let lists = Lists::new();
/// lists.allow("monitoring")?.deny("mallory")?.allow_net("10.0.0.0/8")?.deny_net("2001:db8::/32")?;
/// let limiter = Limiter::builder(MemoryStore::new())
///     .rule(Rule::gcra("per-user", Quota::per_minute(100)).key(key::header("x-user")))
///     .lists(&lists)
///     .build()?;
///
/// assert!(limiter.acquire([("per-user", "mallory")]).await.is_refused());
/// lists.remove("mallory");
/// assert!(limiter.acquire([("per-user", "mallory")]).await.is_allowed());
/// # Ok(())
/// # }
/// ```
///
/// Allow beats deny, and deny beats rules. Whoever is allowed is admitted under no rule, and spends nothing; whoever is denied is
/// [refused](crate::RateLimitLayer::deny_with) with 403. The store is asked for neither, and [`Decision::listed`] says it.
///
/// # By key
///
/// The keys that are compared are those that rules find in a request, or that a [`Call`](crate::Call) names: [`deny`](Lists::deny)
/// is about the key of any rule, [`deny_for`](Lists::deny_for) about the key of one. A rule that does not apply to a request
/// finds no key in it. [`KeyBy::find_now`](crate::key::KeyBy::find_now) shows keys; secrets are given as
/// [`Key::secret`](crate::key::Key::secret). Allow only by keys that callers cannot make up.
///
/// # By subnet
///
/// That is the client's address as the limiter's rules find it: as the first of them with [`key::ip()`](crate::key::ip) behind
/// trusted proxies does, or else the first with `key::ip()`, or else the peer's. [`by`](Lists::by) says it otherwise. **Behind a proxy that
/// no rule names, every request comes from the proxy's address.** A request without an address is on no list of subnets. Calls
/// without HTTP have no address.
///
/// # Size
///
/// At most a million entries. Keys are found by their hash, and subnets by one look for each length of prefix in use, so long
/// lists are as fast as short ones. An empty list costs next to nothing.
///
/// [`Decision::listed`]: crate::Decision::listed
#[derive(Clone, Default)]
pub struct Lists(Arc<Inner>);

#[derive(Default)]
struct Inner {
    entries: RwLock<Entries>,
    /// What is in them, so that requests need not look in vain.
    has: AtomicU8,
    client: Option<Ip>,
}

const KEYS: u8 = 1;
const ALLOWED_KEYS: u8 = 2;
const NETS: u8 = 4;

/// What a list says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Listed {
    /// It is let through, whatever the rules.
    Allowed,
    /// It is refused, whatever the rules.
    Denied,
}

impl Lists {
    /// Lists with nothing in them.
    pub fn new() -> Lists {
        Lists::default()
    }

    /// The same, with the client's address found in this way, whatever the rules say.
    ///
    /// ```
    /// use sluicegate::{Lists, key::{self, TrustedProxies}};
    ///
    /// Lists::by(key::ip().behind(TrustedProxies::cidrs(["10.0.0.0/8"])));
    /// ```
    pub fn by(client: Ip) -> Lists {
        Lists(Arc::new(Inner { client: Some(client), ..Inner::default() }))
    }

    /// Lets through whoever has this key under any rule.
    ///
    /// # Errors
    ///
    /// When the lists are full, here and below.
    pub fn allow(&self, key: impl IntoKey) -> Result<&Lists, BuildError> {
        self.add_key(None, key, ALLOW)
    }

    /// Refuses whoever has this key under any rule.
    ///
    /// # Errors
    ///
    /// See [`allow`](Lists::allow).
    pub fn deny(&self, key: impl IntoKey) -> Result<&Lists, BuildError> {
        self.add_key(None, key, DENY)
    }

    /// Lets through whoever has this key under the rule of this name. Every limiter of these lists must have the rule.
    ///
    /// # Errors
    ///
    /// See [`allow`](Lists::allow).
    pub fn allow_for(&self, rule: &str, key: impl IntoKey) -> Result<&Lists, BuildError> {
        self.add_key(Some(rule), key, ALLOW)
    }

    /// Refuses whoever has this key under the rule of this name. Every limiter of these lists must have the rule.
    ///
    /// # Errors
    ///
    /// See [`allow`](Lists::allow).
    pub fn deny_for(&self, rule: &str, key: impl IntoKey) -> Result<&Lists, BuildError> {
        self.add_key(Some(rule), key, DENY)
    }

    /// Lets through whoever comes from this subnet, in CIDR notation, or this single address. IPv4 inside IPv6 is IPv4.
    ///
    /// # Errors
    ///
    /// When it is no subnet, or the lists are full.
    pub fn allow_net(&self, net: impl AsRef<str>) -> Result<&Lists, BuildError> {
        self.add_net(net.as_ref(), ALLOW)
    }

    /// Refuses whoever comes from this subnet. `0.0.0.0/0` and `::/0` deny everybody who is not allowed.
    ///
    /// # Errors
    ///
    /// See [`allow_net`](Lists::allow_net).
    pub fn deny_net(&self, net: impl AsRef<str>) -> Result<&Lists, BuildError> {
        self.add_net(net.as_ref(), DENY)
    }

    /// Takes a key off both lists, as [`allow`](Lists::allow) and [`deny`](Lists::deny) put it there.
    pub fn remove(&self, key: impl IntoKey) -> &Lists {
        self.remove_key(None, key)
    }

    /// Takes a key off both lists, as [`allow_for`](Lists::allow_for) and [`deny_for`](Lists::deny_for) put it there.
    pub fn remove_for(&self, rule: &str, key: impl IntoKey) -> &Lists {
        self.remove_key(Some(rule), key)
    }

    /// Takes this very subnet off both lists. Larger and smaller ones stay.
    ///
    /// # Errors
    ///
    /// When it is no subnet.
    pub fn remove_net(&self, net: impl AsRef<str>) -> Result<&Lists, BuildError> {
        let net = read(net.as_ref())?;
        Ok(self.change(|entries| entries.remove_net(net)))
    }

    /// Makes these lists what the others are, all at once: to load them anew. How addresses are found stays as it is.
    pub fn replace(&self, with: &Lists) -> &Lists {
        let mut other = Entries::clone(&with.entries());
        // What was there is dropped by us, when requests can look again.
        self.change(|entries| std::mem::swap(entries, &mut other))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn add_key(&self, rule: Option<&str>, key: impl IntoKey, mark: Mark) -> Result<&Lists, BuildError> {
        match key.into_key() {
            Found::Key(key) => self.add(|entries| entries.add_key(rule, key, mark)),
            Found::Absent | Found::Refuse(_) => Ok(self),
        }
    }

    fn add_net(&self, net: &str, mark: Mark) -> Result<&Lists, BuildError> {
        let net = read(net)?;
        self.add(|entries| entries.add_net(net, mark))
    }

    /// `add` answers whether there was room.
    fn add(&self, add: impl FnOnce(&mut Entries) -> bool) -> Result<&Lists, BuildError> {
        let mut added = true;
        self.change(|entries| added = add(entries));
        if added {
            Ok(self)
        } else {
            Err(BuildError::new("lists", format!("have {MOST} entries, and no room for more; remove some")))
        }
    }

    fn remove_key(&self, rule: Option<&str>, key: impl IntoKey) -> &Lists {
        match key.into_key() {
            Found::Key(key) => self.change(|entries| entries.remove_key(rule, &key)),
            Found::Absent | Found::Refuse(_) => self,
        }
    }

    fn change(&self, change: impl FnOnce(&mut Entries)) -> &Lists {
        let mut entries = self.0.entries.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut entries);
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let (keys, allowed) = entries.keys();
        let has = bit(keys, KEYS) | bit(allowed, ALLOWED_KEYS) | bit(entries.has_nets(), NETS);
        self.0.has.store(has, Ordering::Release);
        drop(entries);
        self
    }

    fn entries(&self) -> RwLockReadGuard<'_, Entries> {
        self.0.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn has(&self, bits: u8) -> bool {
        self.0.has.load(Ordering::Acquire) & bits != 0
    }

    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has(KEYS | ALLOWED_KEYS | NETS)
    }

    #[inline]
    pub(crate) fn has_keys(&self) -> bool {
        self.has(KEYS)
    }

    pub(crate) fn has_allowed_keys(&self) -> bool {
        self.has(ALLOWED_KEYS)
    }

    pub(crate) fn has_nets(&self) -> bool {
        self.has(NETS)
    }

    pub(crate) fn of_key(&self, rule: &str, key: &Key) -> Mark {
        self.entries().of_key(rule, key)
    }

    /// The address is canonical.
    pub(crate) fn of_address(&self, address: IpAddr) -> Mark {
        self.entries().of_address(address)
    }

    /// How the client's address is found, where that was said.
    pub(crate) fn client(&self) -> Option<&Ip> {
        self.0.client.as_ref()
    }

    /// What is wrong with them for a limiter that has rules of these names.
    pub(crate) fn check(&self, has_rule: impl Fn(&str) -> bool) -> Result<(), BuildError> {
        if let Some(problem) = self.client().and_then(Ip::problem) {
            return Err(BuildError::new("lists", problem));
        }
        match self.entries().rules().find(|rule| !has_rule(rule)) {
            Some(rule) => {
                let text = "no rule has this name, so its entries would never hold; name a rule of the limiter, or use \
                            .allow(..) and .deny(..), which are about the key of any rule";
                Err(BuildError::rule(rule, "lists", text.into()))
            }
            None => Ok(()),
        }
    }
}

fn read(net: &str) -> Result<Network, BuildError> {
    Network::read(net).map_err(|problem| BuildError::new("lists", problem))
}

/// Without what is in them: keys may be secret.
impl fmt::Debug for Lists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lists({} entries)", self.len())
    }
}
