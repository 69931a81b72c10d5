//! Where each program stood last.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

use serde::{Deserialize, Serialize, Serializer};
use topology::CpuSet;
use workload::{AppId, NameHasher};

/// The CPUs of each of many programs. Every decision looks all of them up and writes all of them anew:
/// nothing here is in order but what is written out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Places(HashMap<AppId, CpuSet, BuildHasherDefault<NameHasher>>);

impl Places {
    pub(crate) fn with_capacity(programs: usize) -> Places {
        Places(HashMap::with_capacity_and_hasher(programs, BuildHasherDefault::default()))
    }

    #[inline]
    /// The place of a program, if it had one.
    pub fn get(&self, app: &AppId) -> Option<&CpuSet> {
        self.0.get(app)
    }

    /// `place` is where it stands, instead of anywhere else.
    pub fn insert(&mut self, app: AppId, place: CpuSet) {
        self.0.insert(app, place);
    }

    /// It stands on `place`, too.
    pub(crate) fn add(&mut self, app: &AppId, place: &CpuSet) {
        match self.0.entry(app.clone()) {
            Entry::Vacant(none) => {
                none.insert(place.clone());
            }
            Entry::Occupied(mut known) => known.get_mut().add_all(place),
        }
    }
}

impl Serialize for Places {
    /// In order of the names, so that equal places are written alike.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.iter().collect::<BTreeMap<&AppId, &CpuSet>>().serialize(serializer)
    }
}

impl FromIterator<(AppId, CpuSet)> for Places {
    fn from_iter<I: IntoIterator<Item = (AppId, CpuSet)>>(places: I) -> Places {
        Places(places.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_written_in_order_of_names_and_read_again() {
        let app = |number: u32| AppId::new(&format!("a{number}")).unwrap();
        let mut places: Places = (0..40).rev().map(|n| (app(n), CpuSet::first(n + 1))).collect();
        places.add(&app(3), &CpuSet::from_cpus(&[9]));
        let text = serde_json::to_string(&places).unwrap();
        let keys: Vec<&str> = text.split('"').filter(|word| word.starts_with('a')).collect();
        assert!(keys.is_sorted() && keys.len() == 40, "{text}");
        assert!(text.contains(r#""a3":"0-3,9""#), "{text}");
        assert_eq!(serde_json::from_str::<Places>(&text).unwrap(), places);
    }
}
