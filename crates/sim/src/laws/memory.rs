//! What it costs when memory lies in another domain, and how it follows.
//!
//! Memory is first touched where the program starts, spread over its domains as its threads are. After
//! a move the part of it that lies elsewhere, r = ½ Σ |where it lies - where the threads are|, is
//! remote; pages migrate at the next touch, which takes r × memory ÷ rate. Until then half of that
//! part is remote on average, and
//!
//! ```text
//! speed = 1 / (1 + remote × bandwidth × r / 2)
//! ```

use workload::Profile;

use crate::model::Laws;

/// Where a program's memory lies, and where it is going.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pages {
    /// Share in each domain when the migration began.
    from: Vec<f64>,
    to: Vec<f64>,
    began_ns: u64,
    ends_ns: u64,
    /// Part that was remote at the beginning.
    remote: f64,
}

impl Pages {
    /// Threads stand with these shares in the domains from `now_ns` on.
    pub fn threads_stand(&mut self, shares: &[f64], profile: &Profile, laws: &Laws, now_ns: u64) {
        if profile.memory_bytes == 0 || shares.len() < 2 {
            return;
        }
        if self.to.is_empty() {
            (self.from, self.to) = (shares.to_vec(), shares.to_vec());
            return;
        }
        if self.to == shares {
            return;
        }
        let lie = self.at(now_ns);
        self.remote = lie.iter().zip(shares).map(|(lie, stand)| (lie - stand).abs()).sum::<f64>() / 2.0;
        let duration_ns = self.remote * profile.memory_bytes as f64 / laws.migrate_bytes_per_s * 1e9;
        (self.from, self.to) = (lie, shares.to_vec());
        (self.began_ns, self.ends_ns) = (now_ns, now_ns + duration_ns as u64);
    }

    fn at(&self, now_ns: u64) -> Vec<f64> {
        if now_ns >= self.ends_ns {
            return self.to.clone();
        }
        let done = (now_ns - self.began_ns) as f64 / (self.ends_ns - self.began_ns) as f64;
        self.from.iter().zip(&self.to).map(|(from, to)| from + (to - from) * done).collect()
    }

    /// When the migration under way ends.
    pub fn ends_ns(&self, now_ns: u64) -> Option<u64> {
        (self.ends_ns > now_ns).then_some(self.ends_ns)
    }

    /// Factor on the speed.
    pub fn keeps(&self, profile: &Profile, laws: &Laws, now_ns: u64) -> f64 {
        if self.ends_ns > now_ns {
            1.0 / (1.0 + laws.remote * profile.bandwidth * self.remote / 2.0)
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn memory_follows_in_the_time_that_its_size_takes() {
        let model = Model::built_in();
        let ft = model.profiles.iter().find(|profile| profile.name == "ft.B").unwrap();
        let mut pages = Pages::default();
        pages.threads_stand(&[1.0, 0.0], ft, &model.laws, 0);
        assert_eq!((pages.ends_ns(0), pages.keeps(ft, &model.laws, 0)), (None, 1.0));
        pages.threads_stand(&[0.0, 1.0], ft, &model.laws, 5);
        let duration_ns = (ft.memory_bytes as f64 / model.laws.migrate_bytes_per_s * 1e9) as u64;
        assert_eq!(pages.ends_ns(5), Some(5 + duration_ns));
        assert!(pages.keeps(ft, &model.laws, 5) < 1.0);
        assert_eq!(pages.keeps(ft, &model.laws, 5 + duration_ns), 1.0);
    }

    #[test]
    fn a_program_that_returns_halfway_has_half_to_fetch() {
        let model = Model::built_in();
        let is = model.profiles.iter().find(|profile| profile.name == "is.C").unwrap();
        let mut pages = Pages::default();
        pages.threads_stand(&[1.0, 0.0], is, &model.laws, 0);
        pages.threads_stand(&[0.0, 1.0], is, &model.laws, 0);
        let whole_ns = pages.ends_ns(0).unwrap();
        pages.threads_stand(&[1.0, 0.0], is, &model.laws, whole_ns / 2);
        let back_ns = pages.ends_ns(whole_ns / 2).unwrap() - whole_ns / 2;
        assert!(back_ns.abs_diff(whole_ns / 2) < 10, "{back_ns} of {whole_ns}");
    }
}
