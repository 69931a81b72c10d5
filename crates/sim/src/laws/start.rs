//! What comes before the first region: loading, setting up, touching memory for the first time; on
//! one CPU, whatever the team will be. Timers inside programs often leave it out.

use workload::Profile;

use crate::model::Laws;

/// Length on a CPU of one's own: the program's own start-up and the machine's. Programs that are
/// nothing but a length (without memory) have theirs in that length.
pub fn ns(profile: &Profile, laws: &Laws) -> f64 {
    let everybody = match profile.memory_bytes {
        0 => 0.0,
        bytes => laws.start_ns + laws.start_ns_per_mib * bytes as f64 / 1_048_576.0,
    };
    profile.start_ns as f64 + everybody
}
