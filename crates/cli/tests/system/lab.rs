//! Who slows whom and who suits whom, by the real binary.

use serde_json::Value;

use crate::world::World;

const PAIRS: &str =
    ",cg,ep,ft,is\ncg,1.9,1.02,1.6,1.3\nep,1.01,1.0,1.01,1.0\nft,1.7,,1.5,1.2\nis,1.4,1.01,1.3,\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn world() -> World {
    let world = World::new();
    world.file("pairs.csv", PAIRS);
    world
}

fn json(world: &World, arguments: &[&str]) -> Value {
    let output = world.run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

/// Status 2 and these words.
fn refused(world: &World, arguments: &[&str], words: &str) {
    let output = world.run(arguments);
    let printed = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && printed.contains(words),
        "{arguments:?}: {:?} {printed}",
        output.status
    );
}

#[test]
fn a_completed_matrix_has_every_cell_with_its_error() {
    let world = world();
    let value = json(
        &world,
        &["lab", "predict", "--matrix", "pairs.csv", "--json", "--csv", "whole.csv", "--svg", "w.svg"],
    );
    assert_eq!(value.as_object().unwrap().len(), 1);
    let cells = value["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 16);
    let unknown: Vec<&Value> = cells.iter().filter(|cell| cell["known"] == false).collect();
    assert_eq!(unknown.len(), 2);
    assert!(
        unknown.iter().all(|cell| cell["value"].as_f64() > Some(0.9) && cell["error"].as_f64() > Some(0.0))
    );
    let known = &cells[2];
    assert_eq!(
        (&known["program"], &known["beside"], &known["value"]),
        (&"cg".into(), &"ft".into(), &1.6.into())
    );
    let whole = std::fs::read_to_string(world.path("whole.csv")).unwrap();
    assert!(whole.starts_with(",cg,ep,ft,is\ncg,1.900000,") && !whole.contains(",,"), "{whole}");
    assert!(std::fs::read_to_string(world.path("w.svg")).unwrap().contains("ft beside ep"));
}

/// Pairs need a CPU each.
fn two_cpus() -> bool {
    std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2)
}

#[test]
fn a_measured_matrix_goes_on_where_it_stopped() {
    let world = world();
    if !two_cpus() {
        return coplace_skipped::skipped_here("there is only one CPU");
    }
    let measure = |rounds: &str| {
        let options =
            ["--out", "m.csv", "--error", "1e-9", "--rounds", rounds, "--json", "--svg", "m.svg", "-q"];
        json(&world, &[&["lab", "matrix", "nap=sleep 0.02", "doze=sleep 0.05"][..], &options].concat())
    };
    let first = measure("2");
    assert!(first["cells"].as_array().unwrap().iter().all(|cell| cell["rounds"] == 2), "{first}");
    let samples = std::fs::read_to_string(world.path("m.csv.samples")).unwrap();
    assert_eq!(samples.lines().count(), 2 + 2 * 2 + 2);
    let more = measure("3");
    assert!(more["cells"].as_array().unwrap().iter().all(|cell| cell["rounds"] == 3), "{more}");
    assert!(std::fs::read_to_string(world.path("m.csv.samples")).unwrap().starts_with(&samples));
    let completed = json(&world, &["lab", "predict", "--matrix", "m.csv", "--json"]);
    assert!(completed["cells"].as_array().unwrap().iter().all(|cell| cell["known"] == true));
    assert!(std::fs::read_to_string(world.path("m.svg")).unwrap().contains("nap beside doze"));
}

#[test]
fn a_failing_program_leaves_its_pairs_empty_and_is_reported() {
    let world = world();
    if !two_cpus() {
        return coplace_skipped::skipped_here("there is only one CPU");
    }
    let words = ["lab", "matrix", "nap=sleep 0.02", "bad=false", "--out", "m.csv", "--rounds", "1", "-q"];
    let output = world.run(&words);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("nap beside bad: bad: failed with exit status 1"), "{printed}");
    assert!(std::fs::read_to_string(world.path("m.csv")).unwrap().contains("bad,,\n"));
    refused(&world, &["lab", "matrix", "a=sleep 0", "a=sleep 1", "--out", "x.csv"], "comes twice");
    refused(&world, &["lab", "matrix", "a=sleep 0", "--out", "x.csv", "--cpus", "0"], "cannot be halved");
}

#[test]
fn neighbours_are_predicted_and_unknown_programs_named() {
    let world = world();
    let printed = text(&world.run(&["lab", "predict", "cg", "ft", "--matrix", "pairs.csv"]).stdout);
    assert!(
        printed.contains("1.60") && printed.contains("1.70") && printed.contains("measured"),
        "{printed}"
    );
    let three = text(&world.run(&["lab", "predict", "cg", "ft", "is", "--matrix", "pairs.csv"]).stdout);
    assert!(three.contains("ft, is") && three.contains("1.90") && three.contains("added up"), "{three}");
    let stranger = text(&world.run(&["lab", "predict", "cg", "new", "--matrix", "pairs.csv"]).stdout);
    assert!(stranger.contains("Nothing is known of new"), "{stranger}");
    let nobody = text(&world.run(&["lab", "predict", "x", "x"]).stdout);
    assert!(nobody.contains("1.25") && nobody.contains("prior"), "{nobody}");
    let alone = text(&world.run(&["lab", "predict", "cg", "--matrix", "pairs.csv"]).stdout);
    assert!(alone.contains("not slowed down"), "{alone}");
}

#[test]
fn predictors_are_judged_on_what_is_known() {
    let value =
        json(&world(), &["lab", "predict", "--matrix", "pairs.csv", "--judge", "--folds", "4", "--json"]);
    let rows = value["predictors"].as_array().unwrap();
    assert_eq!(rows.len(), 11);
    let row = |name: &str| rows.iter().find(|row| row["predictor"] == name).unwrap();
    assert!(row("additive")["mean_error"].as_f64() < row("none")["mean_error"].as_f64());
    assert_eq!(row("class")["silent"], 14);
}

#[test]
fn programs_are_paired_so_that_they_lose_least() {
    let world = world();
    let value = json(
        &world,
        &[
            "lab",
            "pair",
            "cg",
            "ft",
            "ep",
            "ep",
            "--places",
            "2",
            "--matrix",
            "pairs.csv",
            "--exact",
            "--json",
        ],
    );
    assert_eq!(value["placed_by"], "predictions");
    assert!((value["cost"].as_f64().unwrap() - value["exact"].as_f64().unwrap()).abs() < 1e-6, "{value}");
    for place in value["places"].as_array().unwrap() {
        let programs = place["programs"].as_array().unwrap();
        assert_eq!(programs.iter().filter(|one| one["program"] == "ep").count(), 1, "{value}");
    }
    assert!(
        value["cost"].as_f64() < value["random"].as_f64()
            && value["random"].as_f64() < value["worst"].as_f64()
    );
    let printed = text(&world.run(&["lab", "pair", "--matrix", "pairs.csv", "--svg", "p.svg"]).stdout);
    assert!(printed.contains("mean slowdown") && printed.contains("worst"), "{printed}");
    assert!(world.path("p.svg").exists());
}

#[test]
fn without_knowledge_twins_are_kept_apart_and_reported() {
    let world = world();
    let value = json(&world, &["lab", "pair", "a", "a", "b", "b", "c", "c", "--json"]);
    assert_eq!(value["placed_by"], "twins rule");
    for place in value["places"].as_array().unwrap() {
        assert_ne!(place["programs"][0]["program"], place["programs"][1]["program"], "{value}");
    }
    let printed = text(&world.run(&["lab", "pair", "a", "a", "b", "b"]).stdout);
    assert!(printed.contains("twins rule alone"), "{printed}");
}

#[test]
fn odd_numbers_few_programs_and_one_alone_have_their_places() {
    let world = world();
    for (programs, places, occupied) in
        [(&["cg"][..], "3", 1), (&["cg", "ft", "is"], "2", 2), (&["cg", "ft"], "5", 2)]
    {
        let arguments =
            [&["lab", "pair"][..], programs, &["--places", places, "--matrix", "pairs.csv", "--json"]]
                .concat();
        let value = json(&world, &arguments);
        let full = value["places"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|p| !p["programs"].as_array().unwrap().is_empty());
        assert_eq!(full.count(), occupied, "{value}");
    }
}

#[test]
fn schedules_of_twins_are_counted_and_compared() {
    let world = world();
    let value = json(&world, &["lab", "twins", "--count", "10", "--json"]);
    assert_eq!((&value["schedules"], &value["without_twins"]), (&1_436_714.into(), &499_194.into()));
    let value = json(&world, &["lab", "twins", "--matrix", "pairs.csv", "--json", "--svg", "t.svg"]);
    assert_eq!(value["groups"][0]["schedules"], 17);
    assert_eq!(value["predicted_cells"], 2);
    assert_eq!(value["high"][0], "cg");
    let uniform = json(&world, &["lab", "twins", "--uniform", "2", "--json"]);
    assert_eq!(uniform["rows"][4]["different"]["exact"], 0.5);
    let printed = text(&world.run(&["lab", "twins", "--matrix", "pairs.csv"]).stdout);
    assert!(printed.contains("no twins") && printed.contains("Low twins: ep"), "{printed}");
}

#[test]
fn bad_input_is_refused_with_its_place_and_a_remedy() {
    let world = world();
    for (name, content, words) in [
        ("gap.csv", ",a,b\na,1\nb,1,1\n", "gap.csv:2:2: the row of 'a' has 1 values for 2 programs"),
        ("short.csv", ",a,b\na,1,1\n", "short.csv:3:1: the row of 'b' is missing"),
        ("zero.csv", ",a\na,0\n", "zero.csv:2:2: 'a' beside 'a': 0 is no slowdown"),
        ("negative.csv", ",a\na,-1.5\n", "negative.csv:2:2"),
        ("infinite.csv", ",a\na,inf\n", "infinite.csv:2:2"),
    ] {
        world.file(name, content);
        for command in ["predict", "pair", "twins"] {
            refused(&world, &["lab", command, "--matrix", name], words);
        }
    }
    world.file("p.toml", "[program.a]\nclass = \"X\"\n");
    refused(&world, &["lab", "predict", "a", "b", "--profiles", "p.toml"], "p.toml:2:9");
    world.file("q.toml", "[program.a]\npressure = -1\n");
    refused(&world, &["lab", "predict", "a", "b", "--profiles", "q.toml"], "q.toml: a:");
    refused(&world, &["lab", "predict"], "name programs");
    refused(&world, &["lab", "pair"], "name programs");
    refused(&world, &["lab", "twins"], "--matrix");
    refused(&world, &["lab", "predict", "a", "b", "--predictor", "oracle"], "there is no predictor 'oracle'");
    refused(&world, &["lab", "predict", "a", "b", "--matrix", "none.csv"], "cannot read none.csv");
    refused(&world, &["lab", "pair", "a", "b", "--seconds", "1"], "--seconds tells of 1 programs");
    refused(&world, &["lab", "twins", "--matrix", "pairs.csv", "xy"], "no program 'xy'");
    refused(&world, &["lab", "predict", "a", "b", "--predictor", "additive"], "cannot tell");
}

/// Two bubbles of two threads, one after the other on one processor.
fn run_trace() -> String {
    let mut text = String::from(
        "coplace bubbles trace 1\nmachine core:1\nprocessors 1\nscheduler flat\nlost 0\nname b1 left\n\
         0 1 0 made t1 7\n0 1 0 wake t1\n0 0 0 run t1\n",
    );
    for bubble in 1..=2 {
        text += &format!("0 0 1 made b{bubble} 7\n");
        for thread in [2 * bubble, 2 * bubble + 1] {
            text += &format!("0 0 1 made t{thread} 7\n0 0 1 insert t{thread} b{bubble}\n");
        }
        text += &format!("0 0 1 wake b{bubble}\n");
    }
    text += "0 0 1 end\n";
    for thread in 2..=5 {
        text += &format!("{} 0 1 run t{thread}\n{} 0 {thread} end\n", 100 * (thread - 2), 100 * (thread - 1));
    }
    text
}

#[test]
fn a_run_of_bubbles_is_drawn_and_replayed_by_other_schedulers() {
    let world = World::new();
    world.file("run.trace", &run_trace());
    let value = json(&world, &["lab", "bubbles", "trace", "run.trace", "--json", "--svg", "run.svg"]);
    assert_eq!(value["runs"][0]["took_ns"], 400);
    let svg = std::fs::read_to_string(world.path("run.svg")).unwrap();
    assert!(svg.contains(">left</text>") && svg.contains("t2 in left on 0"), "{svg}");

    let value = json(
        &world,
        &[
            "lab",
            "bubbles",
            "replay",
            "run.trace",
            "--json",
            "--machine",
            "pack:2 core:2",
            "--out",
            "new.trace",
        ],
    );
    let runs = value["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 9, "what was recorded, and eight schedulers");
    let spread = runs.iter().find(|run| run["scheduler"] == "spread").unwrap();
    assert_eq!((&spread["took_ns"], &spread["threads"]), (&100.into(), &5.into()), "{spread}");
    json(&world, &["lab", "bubbles", "trace", "new.trace", "--json"]);

    world.file("wrong.trace", "coplace bubbles trace 1\nprocessors 1\n5 0 0 flies\n");
    refused(&world, &["lab", "bubbles", "trace", "wrong.trace"], "wrong.trace: trace, line 3");
    world.file("cut.trace", &run_trace().replace("lost 0", "lost 7"));
    refused(&world, &["lab", "bubbles", "replay", "cut.trace"], "7 events had no room");
    world.file("where.trace", &run_trace().replace("machine core:1\n", ""));
    refused(&world, &["lab", "bubbles", "replay", "where.trace"], "--machine");
}

#[test]
fn the_example_of_djsb_prints_what_its_page_shows() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands/lab.md")).unwrap();
    let (_, example) = page.split_once("```console\n$ coplace lab djsb").expect("an example");
    let (options, rest) = example.split_once('\n').expect("its output");
    let (shown, _) = rest.split_once("```").expect("its end");
    let world = World::new();
    let output = world.shell(&format!("coplace lab djsb{options}"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), shown, "{output:?}");
}

#[test]
fn sessions_that_cannot_be_are_refused() {
    let world = World::new();
    let too_large =
        "analysis needs 400 slots in processes of 50 threads; this allocation has 4 nodes of 40 cores";
    world.fails(&["lab", "djsb", "--analysis", "8x50"], 2, &[too_large]);
    world.fails(&["lab", "djsb", "--allocation", "9000x9000"], 2, &["at most 100000 cores"]);
    world.fails(&["lab", "djsb", "--analysis", "8"], 2, &["is not two numbers"]);
    world.fails(&["lab", "djsb", "--when-full", "leave"], 2, &["a policy is wait, pause"]);
    world.fails(&["lab", "djsb", "--saturating", "0"], 2, &["--saturating"]);
    world.fails(&["lab", "djsb", "--normalisation", "NaN"], 2, &["--normalisation"]);
}
