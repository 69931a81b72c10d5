//! `coplace offload` by the real binary.

use crate::world::World;

/// The products of the command's page: three ways on four cores with a device beside them.
const PRODUCTS: &str = "cores = 4\noverlap = true\n[[resource]]\nkind = 'all-cores'\n[[resource]]\nkind = 'core'\n\
                        [[resource]]\nkind = 'gpu'\nhost_threads = 0.25\n[[task]]\nprogram = 'product'\ncount = 100\n\
                        kernels = [{ on = 'all-cores', takes_s = 1.11 }, { on = 'core', takes_s = 2.74 }, \
                        { on = 'gpu', takes_s = 3.69 }]\n";

fn stdout(world: &World, line: &str) -> String {
    let output = world.shell(line);
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_example_on_its_page_prints_what_stands_there() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands/offload.md"))
            .unwrap();
    let (_, example) = page.split_once("```console\n$ ").expect("an example");
    let (command, rest) = example.split_once('\n').expect("its output");
    let (output, _) = rest.split_once("```").expect("its end");
    let world = World::new();
    world.file("products.toml", PRODUCTS);
    assert_eq!(stdout(&world, command), output);
}

#[test]
fn a_new_strategy_works_and_is_not_overwritten() {
    let world = World::new();
    world.file("products.toml", PRODUCTS);
    stdout(&world, "coplace offload new mine.lua");
    assert!(
        stdout(&world, "coplace offload check mine.lua").starts_with("mine.lua: a strategy that can be used")
    );
    let json = stdout(&world, "coplace offload simulate products.toml --strategy mine.lua --json");
    let result: serde_json::Value = serde_json::from_str(&json).unwrap();
    let [result] = result["results"].as_array().unwrap().as_slice() else { panic!("{json}") };
    assert_eq!(
        (result["strategy"].as_str(), result["tasks"].as_array().unwrap().len()),
        (Some("mine.lua"), 100)
    );
    let schedule = stdout(&world, "coplace offload simulate products.toml --strategy mine.lua --schedule");
    assert_eq!(schedule.matches("\nproduct ").count(), 100, "{schedule}");
    world.fails(&["offload", "new", "mine.lua"], 2, &["mine.lua is there already"]);
    world.fails(&["offload", "new", "mine.txt"], 2, &["ends in .lua"]);
}

#[test]
fn a_listed_strategy_is_shown_as_it_runs() {
    let world = World::new();
    world.file("products.toml", PRODUCTS);
    let listed = stdout(&world, "coplace offload list");
    assert!(listed.contains("adaptive"), "{listed}");
    world.fails(&["offload", "show", "adaptive"], 2, &["adaptive is not written in Lua"]);
    for name in ["short-term", "long-term", "banking", "constraint"] {
        assert!(listed.contains(name), "{listed}");
        stdout(&world, &format!("coplace offload show {name} > own.lua"));
        let played = |strategy: &str| {
            let json = stdout(
                &world,
                &format!(
                    "coplace offload simulate products.toml --governor low --strategy {strategy} --json"
                ),
            );
            json.replace(&format!("\"strategy\": \"{strategy}\""), "")
        };
        assert_eq!(played(name), played("own.lua"), "{name}");
    }
}

#[test]
fn wrong_scenarios_and_strategies_are_named() {
    let world = World::new();
    world.file("products.toml", PRODUCTS);
    world.file("broken.toml", "cores = 4\n[[resource]]\nkind = 'core'\ncuont = 2\n");
    world.file("idle.lua", "function resource_free(node, resource) end\n");
    world.file("throws.lua", "function resource_free(node, resource)\n  error('no')\nend\n");
    world.file("loops.lua", "function resource_free(node, resource)\n  while true do end\nend\n");
    world.file("empty.lua", "words = 'x'\n");
    let simulate = |file: &str, strategy: &str, status: i32, wanted: &[&str]| {
        world.fails(&["offload", "simulate", file, "--strategy", strategy], status, wanted);
    };
    simulate("none.toml", "short-term", 2, &["cannot read none.toml"]);
    simulate("broken.toml", "short-term", 2, &["broken.toml: ", "line 4", "cuont"]);
    simulate("products.toml", "longterm", 2, &["'longterm' is no strategy", "long-term"]);
    simulate("products.toml", "idle.lua", 1, &["under idle.lua, 100 tasks wait"]);
    simulate("products.toml", "throws.lua", 1, &["throws.lua:2: no"]);
    simulate("products.toml", "loops.lua", 1, &["loops.lua:2: ", "1000000 instructions"]);
    world.fails(
        &["offload", "check", "empty.lua"],
        2,
        &["empty.lua: there is neither a function task_arrived"],
    );
    world.fails(&["offload", "simulate", "products.toml", "--governor", "middle"], 2, &["high or low"]);
}
