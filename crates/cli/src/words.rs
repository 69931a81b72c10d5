//! Policies by their letters or words.

/// The letters of a policy named by letters or words, in any case.
pub fn policy_letters(name: &str) -> Result<String, String> {
    // The one that needs a plan gets it later, or tells then that it has none.
    let settings = policy::Settings { plan: Some("idle".into()), ..Default::default() };
    match policy::by_name(name, &settings) {
        Ok(policy) => Ok(policy.letters().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
