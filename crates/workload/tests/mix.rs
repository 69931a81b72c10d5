//! The file of `coplace mix`: what is read, and one rejection a rule.

use std::path::Path;

use coplace_workload::{Malleability, Mix, WaitPolicy};
use proptest::prelude::*;

fn parse(text: &str) -> Mix {
    Mix::parse(text, Path::new("dir/mix.toml")).unwrap_or_else(|error| panic!("{error}"))
}

fn ids(mix: &Mix) -> Vec<String> {
    mix.instances().iter().map(|instance| instance.id.to_string()).collect()
}

#[test]
fn a_program_needs_no_more_than_a_command() {
    let mix = parse("[[program]]\ncommand = './cg'\n");
    let program = &mix.programs[0];
    assert_eq!(program.name.as_str(), "cg");
    assert_eq!(program.command, ["./cg"]);
    assert_eq!((program.arrive_ns, program.repeat, program.repeat_every_ns), (0, 1, 0));
    assert_eq!(program.directory, Path::new("dir"));
    assert_eq!(program.demand, coplace_workload::Demand::default());
    assert_eq!((mix.policy, program.alone_ns), (None, None));
}

#[test]
fn every_key_is_read() {
    let mix = parse(
        r#"
        [mix]
        policy = "TA"
        [[program]]
        name = "cg"
        command = ["./cg.x", "--size", "M"]
        arrive_s = 0.5
        repeat = 1_0
        repeat_every_s = 2
        directory = "work"
        stdin = "in"
        stdout = "/tmp/out"
        stderr = "err"
        alone_s = 4.1
        waiting = "passive"
        [program.environment]
        OMP_WAIT_POLICY = "passive"
        OMP_NUM_THREADS = 2
        [program.demand]
        malleability = "rigid"
        min_threads = 2
        max_threads = 2
        weight_milli = 500
        coschedule = false
        "#,
    );
    let program = &mix.programs[0];
    assert_eq!(mix.policy.as_deref(), Some("TA"));
    assert_eq!(program.name.as_str(), "cg");
    assert_eq!(program.arrive_ns, 500_000_000);
    assert_eq!((program.repeat, program.repeat_every_ns), (10, 2_000_000_000));
    assert_eq!(program.directory, Path::new("dir/work"));
    assert_eq!(program.stdin.as_deref(), Some(Path::new("dir/work/in")));
    assert_eq!(program.stdout.as_deref(), Some(Path::new("/tmp/out")));
    assert_eq!(program.stderr.as_deref(), Some(Path::new("dir/work/err")));
    assert_eq!(program.alone_ns, Some(4_100_000_000));
    assert_eq!(program.waiting, WaitPolicy::Passive);
    assert_eq!(program.environment["OMP_WAIT_POLICY"], "passive");
    assert_eq!(program.environment["OMP_NUM_THREADS"], "2");
    assert_eq!(program.demand.malleability, Malleability::Rigid);
    assert_eq!((program.demand.min_threads, program.demand.max_threads), (2, Some(2)));
    assert_eq!((program.demand.weight_milli, program.demand.coschedule), (500, false));
}

#[test]
fn a_string_is_split_like_a_shell_would_without_expansions() {
    let words =
        |command: &str| parse(&format!("[[program]]\ncommand = '''{command}'''")).programs[0].command.clone();
    assert_eq!(words("a  b\tc"), ["a", "b", "c"]);
    assert_eq!(words(r#"a "b c" d\ e """#), ["a", "b c", "d e", ""]);
    assert_eq!(words(r#"a "q\"\\\n" x"y"z"#), ["a", r#"q"\\n"#, "xyz"]);
    assert_eq!(words(r"a \$HOME b#c d~"), ["a", "$HOME", "b#c", "d~"]);
}

#[test]
fn names_and_repeats_never_collide() {
    let text = "[[program]]\ncommand='a/cg'\nrepeat=2\n[[program]]\ncommand='b/cg'\n[[program]]\nname='cg.3'\ncommand='c'\n";
    let mix = parse(text);
    assert_eq!(mix.programs.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["cg", "cg.2", "cg.3"]);
    assert_eq!(ids(&mix), ["cg", "cg.4", "cg.2", "cg.3"]);
}

#[test]
fn a_default_name_keeps_what_a_name_can_hold() {
    let name =
        |command: &str| parse(&format!("[[program]]\ncommand = [{command:?}]")).programs[0].name.to_string();
    assert_eq!(name("/opt/3d tool+"), "_3d_tool_");
    assert_eq!(name("ünter"), "_nter");
    assert_eq!(name(&"x".repeat(100)), "x".repeat(64));
}

#[test]
fn instances_come_by_arrival_and_then_in_file_order() {
    let mix = parse(
        "[[program]]\ncommand='late'\narrive_s=1\n[[program]]\ncommand='often'\nrepeat=3\nrepeat_every_s=1\n[[program]]\ncommand='also'\n",
    );
    assert_eq!(ids(&mix), ["often", "also", "late", "often.2", "often.3"]);
    assert_eq!(mix.instances()[4].arrive_ns, 2_000_000_000);
}

/// The error of a file whose body is a valid program followed by `more`.
fn error(more: &str) -> String {
    let text = format!("[[program]]\ncommand = \"x\"\n{more}");
    match Mix::parse(&text, Path::new("m.toml")) {
        Ok(mix) => panic!("accepted: {mix:?}"),
        Err(error) => error.to_string(),
    }
}

macro_rules! rejections {
    ($($name:ident: $more:expr => $($part:expr),+;)*) => {$(
        #[test]
        fn $name() {
            let error = error($more);
            for part in [$($part),+] {
                assert!(error.contains(part), "{part:?} is not in: {error}");
            }
        }
    )*};
}

rejections! {
    an_unknown_key_is_refused_with_the_nearest: "arive_s = 1" => "m.toml:3:1: program.arive_s: ", "did you mean 'arrive_s'";
    a_key_like_no_other_is_refused_with_the_list: "zzz = 1" => "m.toml:3:1", "known are name, command";
    an_unknown_table_is_refused: "[mixx]" => "m.toml:3:2: mixx", "'mix'";
    an_unknown_demand_is_refused: "[program.demand]\nmax_thread = 1" => "m.toml:4:1: program.demand.max_thread", "'max_threads'";
    an_unknown_key_of_the_mix_is_refused: "[mix]\npolcy = 'TA'" => "m.toml:4:1: mix.polcy", "'policy'";
    a_negative_time_is_refused: "arrive_s = -1.0" => "m.toml:3:12: program.arrive_s", "from 0";
    a_negative_gap_is_refused: "repeat_every_s = -1" => "m.toml:3:18: program.repeat_every_s";
    a_time_that_is_no_number_is_refused: "arrive_s = nan" => "m.toml:3:12: program.arrive_s";
    an_endless_time_is_refused: "arrive_s = inf" => "m.toml:3:12: program.arrive_s";
    a_time_in_words_is_refused: "arrive_s = '1s'" => "must be a number of seconds, not a string";
    a_run_time_alone_of_0_is_refused: "alone_s = 0" => "m.toml:3:11: program.alone_s", "leave it out";
    repeating_0_times_is_refused: "repeat = 0" => "m.toml:3:10: program.repeat", "from 1", "not 0";
    repeating_half_a_time_is_refused: "repeat = 1.5" => "m.toml:3:10", "whole number", "not a float";
    a_name_with_a_blank_is_refused: "name = 'a b'" => "m.toml:3:8: program.name", "'a b' is not an application name";
    an_empty_path_is_refused: "stdout = ''" => "m.toml:3:10: program.stdout", "leave the key out";
    a_minimum_above_the_maximum_is_refused: "[program.demand]\nmin_threads = 3\nmax_threads = 2" => "m.toml:4:15: program.demand.min_threads", "more than max_threads = 2";
    no_threads_are_refused: "[program.demand]\nmin_threads = 0" => "m.toml:4:15", "from 1";
    too_many_threads_are_refused: "[program.demand]\nmax_threads = 5000000000" => "m.toml:4:15", "to 65536";
    no_weight_is_refused: "[program.demand]\nweight_milli = 0" => "m.toml:4:16", "from 1";
    an_unknown_malleability_is_refused: "[program.demand]\nmalleability = 'soft'" => "m.toml:4:16", "'soft' is none of rigid, moldable";
    coschedule_in_words_is_refused: "[program.demand]\ncoschedule = 'yes'" => "m.toml:4:14", "true or false";
    a_variable_with_an_equals_sign_is_refused: "[program.environment]\n'A=B' = 'c'" => "m.toml:4:1: program.environment.A=B", "name of a variable";
    a_list_as_a_variable_is_refused: "[program.environment]\nA = []" => "m.toml:4:5: program.environment.A", "must be a string", "not a list";
    an_environment_in_a_string_is_refused: "environment = 'A=b'" => "m.toml:3:15", "table";
    an_unknown_way_to_wait_is_refused: "waiting = 'lazy'" => "m.toml:3:11: program.waiting", "'lazy' is none of auto, passive";
    malformed_toml_is_refused: "name = " => "m.toml:3:", "";
    a_second_value_is_refused: "repeat = 1\nrepeat = 2" => "m.toml:4:1", "duplicate";
}

#[test]
fn commands_that_name_no_program_or_need_a_shell_are_refused() {
    let error = |command: &str| {
        Mix::parse(&format!("[[program]]\n{command}"), Path::new("m.toml")).unwrap_err().to_string()
    };
    assert_eq!(
        error(""),
        "m.toml:1:1: program.command: is missing: write command = [\"./program\", \"argument\"]"
    );
    for empty in ["command = ''", "command = []", "command = ['']", "command = '  '"] {
        assert_eq!(error(empty), "m.toml:2:11: program.command: is empty: name the program to start");
    }
    assert!(error("command = 3").contains("m.toml:2:11: program.command: must be a string or a list"));
    assert!(error("command = ['a', 3]").contains("m.toml:2:17: program.command: must be a list of strings"));
    assert!(error("command = \"a \\u0000\"").contains("NUL"));
    for shell in ["a $B", "a | b", "a > b", "a; b", "a &", "a `b`", "a *.c", "a (b)", "~/a", "a \"$B\""] {
        assert!(error(&format!("command = '''{shell}'''")).contains("needs a shell"), "{shell}");
    }
    for open in ["a 'b", "a \"b", "a \\"] {
        assert!(error(&format!("command = {open:?}")).contains("m.toml:2:11"), "{open}");
    }
}

#[test]
fn a_file_without_programs_is_refused() {
    let error = Mix::parse("[mix]\n", Path::new("m.toml")).unwrap_err();
    assert_eq!(error.to_string(), "m.toml: there is no program: add a [[program]] with a command");
    assert!(Mix::parse("program = 3", Path::new("m.toml")).unwrap_err().to_string().contains("[[program]]"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Mix::load(Path::new("/nowhere/mix.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/mix.toml: "), "{error}");
}

#[test]
fn columns_count_characters_not_bytes() {
    let error = Mix::parse("program = [{ name = 'ü', x = 1 }]", Path::new("m.toml")).unwrap_err();
    assert_eq!(error.position, Some((1, 26)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused_but_never_a_panic(text in "[\\[\\]a-z=\"'.0-9 \n{}_-]{0,80}") {
        let _ = Mix::parse(&text, Path::new("m.toml"));
    }

    #[test]
    fn quoted_words_come_back_as_they_were(words in prop::collection::vec("[ -~]{0,8}", 1..5)) {
        let quoted: Vec<String> = words.iter().map(|w| format!("'{}'", w.replace('\'', r"'\''"))).collect();
        let line = format!("p {}", quoted.join(" ")).replace('\\', r"\\").replace('"', "\\\"");
        let mix = parse(&format!("[[program]]\ncommand = \"{line}\""));
        prop_assert_eq!(&mix.programs[0].command[1..], &words[..]);
    }

    #[test]
    fn instances_have_unique_names_and_come_in_order(
        programs in prop::collection::vec((0u32..3, 1u32..5, 0u32..4, 0u32..3), 1..8)
    ) {
        let text: String = programs.iter().map(|(name, repeat, arrive, every)| format!(
            "[[program]]\nname='{}'\ncommand='x'\nrepeat={repeat}\narrive_s={arrive}\nrepeat_every_s={every}\n",
            ["a", "a.2", "b"][*name as usize]
        )).collect();
        let mix = parse(&text);
        let instances = mix.instances();
        prop_assert_eq!(instances.len() as u32, programs.iter().map(|p| p.1).sum::<u32>());
        prop_assert!(instances.is_sorted_by_key(|instance| instance.arrive_ns));
        let mut names: Vec<_> = instances.iter().map(|instance| &instance.id).collect();
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), instances.len());
        for (index, program) in mix.programs.iter().enumerate() {
            let own: Vec<_> = instances.iter().filter(|i| i.program == index).collect();
            prop_assert_eq!(own.len() as u32, program.repeat);
            prop_assert_eq!(&own[0].id, &program.name);
        }
    }
}
