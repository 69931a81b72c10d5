//! What a live scheduler decided about real OpenMP programs, played again.

use coplace_tests::{Home, app, top};

/// Programs that are resized, and one that takes turns, so that plans follow from what was observed.
fn mix() -> String {
    let program = |name: &str, more: &str| {
        let path = app(name);
        format!("[[program]]\nname = '{name}'\ncommand = ['{path}', '--size', 'S', '--scale', '0.2'{more}]\n")
    };
    program("cg", "")
        + &program("regions", "")
        + "arrive_s = 0.2\n"
        + &program("rigid", ", '--threads', '2'")
        + "arrive_s = 0.4\n[program.demand]\nmalleability = 'rigid'\nmax_threads = 2\n"
}

#[test]
fn decisions_about_real_programs_replay_to_the_same_plans() {
    let script = top().join("docs/policies/lua/ta.lua");
    for policy in [script.to_str().expect("the checkout's path is text"), "CO"] {
        let home = Home::new();
        let trace = home.path().join("trace.jsonl");
        let trace = trace.to_str().expect("the home's path is text");
        let mixed = home.mix(&mix(), &["--policy", policy, "--trace", trace]);
        mixed.is_verified();
        let replayed = home.json(&["replay", trace, "--json"]).expect("the trace replays");
        assert_eq!(replayed["differ"], 0, "{policy}: {replayed}");
        assert!(replayed["plans"].as_u64().unwrap() >= 6, "{policy}: {replayed}");
        let text = std::fs::read_to_string(trace).expect("the trace is there");
        assert!(text.contains("\"observed\""), "programs were seen to change");
        assert!(!text.contains("\"rejected\""), "{policy}: a plan was not carried out");
        std::fs::remove_file(trace).expect("it is ours");
        home.is_left_clean();
    }
}
