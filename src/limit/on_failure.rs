/// What happens under a rule when the store gives no answer in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnFailure {
    /// The rule admits the request, unlimited and uncounted.
    Allow,
    /// The request is refused with 503.
    Refuse,
    /// The rule counts in this process meanwhile, with this process's share of the quota: see
    /// [`Resilient`](crate::Resilient). Where the store is not in one, this is `Allow`.
    #[default]
    Local,
}
