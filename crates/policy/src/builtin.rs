//! The policies that come with coplace, by name.

use crate::{Failed, Policy, Settings, adaptive, bp, co, eq, fixed, la, lira, lv, ta, twins, ue};

/// A policy as people choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its short name, such as `TA`.
    pub letters: &'static str,
    /// Its name in words.
    pub words: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
}

/// Why there is no policy of a name, or none with these settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPolicy {
    /// No policy has this name.
    #[error("there is no policy '{name}'{}; there are: {}, and files that end in .lua", nearest.map_or(String::new(), |n| format!(" (did you mean {n}?)")), all())]
    Name {
        /// What was asked for.
        name: String,
        /// The name that is most like it, if one is.
        nearest: Option<&'static str>,
    },
    /// `fixed` was given no plan.
    #[error(
        "the policy 'fixed' needs a plan in its settings, for example plan = \"side_by_side [a on 0, b on 1]\""
    )]
    NoPlan,
    /// The plan of `fixed` is none.
    #[error("the plan of the policy 'fixed' cannot be read: {0}")]
    Plan(plan::ParsePlanError),
    /// A Lua policy without the text of its file in the settings.
    #[error("the policy '{file}' is a Lua file, and its text was not read")]
    NoScript {
        /// The file's name.
        file: String,
    },
    /// The script fails as soon as it is loaded.
    #[error(transparent)]
    Script(#[from] Failed),
}

const LIST: [Listed; 11] = [
    Listed {
        letters: "TA",
        words: "equal parts by topology",
        summary: "each program gets an equal part of the machine's tree; rigid ones take turns at full width (default)",
    },
    Listed {
        letters: "CO",
        words: "equal parts by topology with coscheduling",
        summary: "wider parts, on which several programs take turns as gangs",
    },
    Listed {
        letters: "LV",
        words: "equilibrium over levels",
        summary: "partitions of several widths in turn, so that all get the same CPU time whatever their number",
    },
    Listed { letters: "EQ", words: "equal parts", summary: "CPUs divided evenly, wherever they lie" },
    Listed {
        letters: "BP",
        words: "one after another",
        summary: "first come, first served, on the whole machine",
    },
    Listed {
        letters: "UE",
        words: "uncontrolled",
        summary: "as without coplace: every program on everything",
    },
    Listed {
        letters: "LA",
        words: "load-adaptive",
        summary: "uncontrolled, but OpenMP programs size their teams by the load average (OMP_DYNAMIC)",
    },
    Listed {
        letters: "adaptive",
        words: "by evidence",
        summary: "widths, neighbours and homes by what was learned about the programs",
    },
    Listed {
        letters: "twins",
        words: "twins apart",
        summary: "equal parts by topology, and no two runs of one program share memory and caches",
    },
    Listed {
        letters: "LIRA",
        words: "load rates balanced",
        summary: "equal parts by topology, and programs with high load instruction rates stand beside those with low ones",
    },
    Listed { letters: "fixed", words: "a fixed plan", summary: "the plan that the settings give" },
];

/// All policies, the default first.
pub fn list() -> &'static [Listed] {
    &LIST
}

fn all() -> String {
    LIST.iter().map(|listed| listed.letters).collect::<Vec<_>>().join(", ")
}

/// One of them by its letters or words, in any case. `TA+` and `default` name the default.
pub(crate) fn built_in(name: &str, settings: &Settings) -> Result<Box<dyn Policy>, UnknownPolicy> {
    let wanted = name.trim().to_lowercase();
    let listed = LIST.iter().find(|listed| {
        let both = format!("{} ({})", listed.words, listed.letters);
        [listed.letters, listed.words, &both].iter().any(|known| known.to_lowercase() == wanted)
    });
    let letters = match (listed, wanted.as_str()) {
        (Some(listed), _) => listed.letters,
        (None, "ta+" | "default") => "TA",
        (None, _) => return Err(UnknownPolicy::Name { name: name.to_owned(), nearest: nearest(&wanted) }),
    };
    let settings = settings.clone();
    Ok(match letters {
        "TA" => Box::new(ta::ByTopology { settings }),
        "CO" => Box::new(co::Coscheduling { settings }),
        "LV" => Box::new(lv::EquilibriumOverLevels { settings }),
        "EQ" => Box::new(eq::EqualParts { settings }),
        "BP" => Box::new(bp::OneAfterAnother { settings }),
        "UE" => Box::new(ue::Uncontrolled { settings }),
        "twins" => Box::new(twins::TwinsApart::new(settings)),
        "LIRA" => Box::new(lira::LoadRates::new(settings)),
        "adaptive" => Box::new(adaptive::Adaptive { settings }),
        "LA" => Box::new(la::LoadAdaptive { settings }),
        _ => {
            let text = settings.plan.as_deref().ok_or(UnknownPolicy::NoPlan)?;
            let plan = text.parse().map_err(UnknownPolicy::Plan)?;
            Box::new(fixed::Fixed { settings, plan })
        }
    })
}

/// The letters or words that need the fewest changes, if that is few.
fn nearest(wanted: &str) -> Option<&'static str> {
    let names =
        LIST.iter().flat_map(|listed| [(listed.letters, listed.letters), (listed.words, listed.letters)]);
    let rated = names.map(|(name, letters)| (changes(wanted, &name.to_lowercase()), name.len(), letters));
    rated.filter(|(changes, length, _)| *changes * 2 <= *length).min().map(|(_, _, letters)| letters)
}

/// Levenshtein's distance.
fn changes(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (row[j] + 1).min(row[j + 1] + 1).min(corner + usize::from(x != *y));
            corner = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_found_by_letters_words_and_both() {
        let settings = Settings { plan: Some("a on 0".into()), ..Settings::default() };
        for listed in list() {
            for name in [listed.letters, listed.words, &listed.letters.to_lowercase()] {
                let policy = built_in(name, &settings).unwrap();
                assert_eq!((policy.letters(), policy.words()), (listed.letters, listed.words));
            }
        }
        assert_eq!(built_in("equal parts (EQ)", &settings).unwrap().letters(), "EQ");
        assert_eq!(built_in("TA+", &settings).unwrap().letters(), "TA");
    }

    #[test]
    fn an_unknown_policy_is_named_with_the_nearest_one() {
        let error = built_in("equal part", &Settings::default()).err().unwrap();
        assert!(error.to_string().contains("did you mean EQ?"), "{error}");
        assert!(matches!(
            built_in("zzzzzz", &Settings::default()),
            Err(UnknownPolicy::Name { nearest: None, .. })
        ));
        assert_eq!(built_in("fixed", &Settings::default()).err(), Some(UnknownPolicy::NoPlan));
        let broken = Settings { plan: Some("a on".into()), ..Settings::default() };
        assert!(matches!(built_in("fixed", &broken), Err(UnknownPolicy::Plan(_))));
    }
}
