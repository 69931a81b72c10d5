use plan::Run;

use super::*;

fn app(name: &str) -> AppId {
    AppId::new(name).unwrap()
}

fn run(name: &str, place: &str) -> Tree {
    Tree::Run(Run::new(app(name), place.parse().unwrap()))
}

fn turns(slots: Vec<(u64, Tree)>) -> Tree {
    let slots = slots.into_iter().map(|(slice_ns, tree)| plan::Slot { slice_ns, tree }).collect();
    Tree::InTurn { mode: TurnMode::Strict, slots }
}

fn plan(tree: Tree) -> Plan {
    Plan { tree: Some(tree), ..Plan::default() }
}

#[test]
fn an_unchanged_stretch_is_one_segment() {
    let both = Tree::SideBySide(vec![run("a", "0"), run("b", "1")]);
    let other = Tree::SideBySide(vec![run("a", "0"), run("c", "1")]);
    let plans = [(0, plan(both)), (10, plan(other)), (30, plan(run("c", "0-1"))), (40, Plan::default())];
    let found: Vec<_> = segments(&plans, 50)
        .into_iter()
        .map(|s| format!("{} {} {}-{} ×{}", s.app, s.cpus, s.from_ns, s.to_ns, s.threads))
        .collect();
    assert_eq!(found, ["a 0 0-30 ×1", "b 1 0-10 ×1", "c 1 10-30 ×1", "c 0-1 30-40 ×2"]);
}

#[test]
fn the_last_plan_lasts_to_the_end() {
    let found = segments(&[(5, plan(run("a", "0-1")))], 9);
    assert_eq!((found[0].from_ns, found[0].to_ns), (5, 9));
    assert!(segments(&[(5, plan(run("a", "0")))], 5).is_empty());
}

#[test]
fn nested_turns_run_one_program_at_a_time_with_its_share() {
    // Levels in turn: 4 ns of {b, c in turn 1:2}, then 6 ns of a alone.
    let inner = turns(vec![(1, run("b", "0")), (2, run("c", "0"))]);
    let found = segments(&[(0, plan(turns(vec![(4, inner), (6, run("a", "0"))])))], 300);
    let mut counts = std::collections::BTreeMap::new();
    for at_ns in 0..300 {
        let running: Vec<_> = found.iter().filter(|s| s.runs_at(at_ns)).collect();
        assert_eq!(running.len(), 1, "at {at_ns}");
        *counts.entry(running[0].app.as_str()).or_insert(0) += 1;
    }
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [("a", 180), ("b", 40), ("c", 80)]);
    for segment in &found {
        assert_eq!(segment.in_turn_with.len(), 2, "{segment:?}");
    }
    // The bands of a row never overlap and fill it.
    let mut bands: Vec<_> = found.iter().map(Segment::band).collect();
    bands.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut top = 0.0;
    for (from, height) in bands {
        assert!((from - top).abs() < 1e-9);
        top += height;
    }
    assert!((top - 1.0).abs() < 1e-9);
}

#[test]
fn mixed_programs_share_the_height_of_a_row() {
    let tree = Tree::Mixed { owner: Default::default(), parts: vec![run("a", "0-1"), run("b", "0-1")] };
    let bands: Vec<_> = segments(&[(0, plan(tree))], 1).iter().map(Segment::band).collect();
    assert_eq!(bands, [(0.0, 0.5), (0.5, 0.5)]);
}

fn timeline() -> Timeline {
    let program = |name, arrived_ns, started_ns, ended_ns| Program {
        app: app(name),
        command: format!("./{name} <&\"'>"),
        arrived_ns,
        started_ns: Some(started_ns),
        ended_ns: Some(ended_ns),
        response_ns: Some(ended_ns - arrived_ns),
        alone_ns: None,
        slowdown: None,
        ending: "exit 0".into(),
        well: true,
    };
    let tree = Tree::SideBySide(vec![run("a", "0"), turns(vec![(20, run("b", "1")), (20, run("c", "1"))])]);
    Timeline {
        title: "three </script> programs".into(),
        policy: "equal parts (EQ)".into(),
        facts: vec!["2 CPUs".into()],
        cpus: "0-1".parse().unwrap(),
        end_ns: 100,
        programs: vec![program("a", 0, 0, 100), program("b", 10, 20, 80), program("c", 10, 20, 90)],
        segments: segments(&[(0, plan(tree))], 100),
        makespan_ns: 100,
        antt: None,
        stp: None,
    }
}

#[test]
fn presence_counts_from_arrival_and_running_from_start() {
    let found = timeline().present();
    assert_eq!(found, [(0, 1, 1), (10, 3, 1), (20, 3, 3), (80, 2, 2), (90, 1, 1), (100, 0, 0)]);
}

#[test]
fn the_page_is_whole_and_nothing_in_the_data_can_end_its_script() {
    let page = html::render(&timeline());
    assert_eq!(page.matches("</script>").count(), page.matches("<script").count());
    assert!(page.contains("three &lt;/script&gt; programs"));
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("@import"));
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let value: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(value["segments"].as_array().unwrap().len(), 3);
    assert_eq!(value["title"], "three </script> programs");
}

#[test]
fn the_picture_is_well_formed_and_names_every_program() {
    let svg = picture::render(&timeline(), 900);
    for name in ["a", "b", "c"] {
        assert!(svg.contains(&format!(">{name}<")), "{name}");
    }
    let open = svg.matches("<g").count();
    assert_eq!(open, svg.matches("</g>").count());
    assert!(!svg.contains("NaN"));
}

#[test]
fn the_terminal_shows_letters_where_there_is_no_colour() {
    let text = terminal::render(&timeline(), 40, false);
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("CPU")).collect();
    assert_eq!(rows.len(), 2);
    assert!(rows[0].contains("AAAA"), "{text}");
    assert!(rows[1].contains('B') && rows[1].contains('C'), "{text}");
    assert!(!text.contains('\u{1b}'));
    assert!(terminal::render(&timeline(), 40, true).contains('\u{1b}'));
}
