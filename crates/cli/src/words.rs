//! Policies by their letters or words.

/// The letters of a policy named by letters or words, in any case.
pub fn policy_letters(name: &str) -> Result<String, String> {
    let wanted = name.trim();
    let listed = policy::list();
    let found = listed.iter().find(|listed| {
        listed.letters.eq_ignore_ascii_case(wanted) || listed.words.eq_ignore_ascii_case(wanted)
    });
    match found {
        Some(listed) => Ok(listed.letters.to_string()),
        None => {
            let known: Vec<String> = listed.iter().map(|listed| listed.letters.to_string()).collect();
            Err(format!("'{name}' is no policy: {}; `coplace policy list` explains them", known.join(", ")))
        }
    }
}
