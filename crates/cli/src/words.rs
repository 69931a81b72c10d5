//! Policies in words with their letters: "equal parts (EQ)".

/// Letters, words, and what it does in one line.
pub const POLICIES: [(&str, &str, &str); 7] = [
    ("TA+", "equal parts by topology, turns for rigid programs", "the default"),
    ("UE", "uncontrolled", "every program on every CPU, the kernel decides"),
    ("LA", "load-adaptive", "teams sized by the load average, as OMP_DYNAMIC does"),
    ("BP", "one after another", "each program has the machine to itself, in order of arrival"),
    ("EQ", "equal parts", "as many CPUs for each, moved as rarely as possible"),
    ("TA", "equal parts by topology", "as EQ, along packages, caches and cores"),
    ("CO", "equal parts with turns", "as TA, with partitions of allowed sizes that programs share in turn"),
];

/// The letters of a policy named by letters or words, in any case.
pub fn policy_letters(name: &str) -> Result<&'static str, String> {
    let wanted = name.trim();
    POLICIES
        .iter()
        .find(|(letters, words, _)| letters.eq_ignore_ascii_case(wanted) || words.eq_ignore_ascii_case(wanted))
        .map(|(letters, _, _)| *letters)
        .ok_or_else(|| format!("'{name}' is no policy; `coplace policy list` shows them"))
}
