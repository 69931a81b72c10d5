//! What the whole-system tests share.

use std::path::{Path, PathBuf};

/// The top of the checkout.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the checkout").to_owned()
}
