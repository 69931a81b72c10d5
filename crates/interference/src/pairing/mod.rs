//! Who stands beside whom.
pub(crate) mod blossom;
