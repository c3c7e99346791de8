//! Explanations of policies, and that they are what limiters do.

mod agreement;
mod policies;
