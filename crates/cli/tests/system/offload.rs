//! `coplace offload` by the real binary.

use crate::world::{Started, World, until};

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
    let (_, example) = page.split_once("```console\n$ coplace offload simulate").expect("an example");
    let (options, rest) = example.split_once('\n').expect("its output");
    let (output, _) = rest.split_once("```").expect("its end");
    let world = World::new();
    world.file("products.toml", PRODUCTS);
    assert_eq!(stdout(&world, &format!("coplace offload simulate{options}")), output);
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

/// A service that listens, with one device.
fn service(world: &World, more: &[&str]) -> Started {
    let service = world.spawn(&[&["offload", "serve", "--device", "gpu"], more].concat());
    until("the service to listen", || world.run(&["offload", "status"]).status.success());
    service
}

fn status(world: &World) -> serde_json::Value {
    serde_json::from_slice(&world.run(&["offload", "status", "--json"]).stdout).unwrap()
}

fn runs_on_gpu(world: &World) -> Option<String> {
    let status = status(world);
    let gpu = status["resources"].as_array()?.iter().find(|it| it["resource"]["name"] == "gpu0")?;
    gpu["running"].as_str().map(ToOwned::to_owned)
}

#[test]
fn programs_that_want_one_device_take_turns_on_it() {
    let world = World::new();
    let mut service = service(&world, &[]);
    let command =
        "mkdir there || echo clash >> clashes; sleep 0.1; rmdir there; echo $COPLACE_RESOURCE >> ended";
    let programs: Vec<_> = (0..6)
        .map(|number| {
            let kernel = format!("gpu={command}");
            let name = format!("p{number}");
            world.command(&["offload", "run", "--name", &name, "--kernel", &kernel]).spawn().unwrap()
        })
        .collect();
    for mut program in programs {
        assert!(program.wait().unwrap().success());
    }
    assert!(!world.path("clashes").exists());
    assert_eq!(std::fs::read_to_string(world.path("ended")).unwrap(), "gpu0\n".repeat(6));
    until("the last to be seen to have ended", || status(&world)["ended"] == 6);
    service.signal(libc::SIGTERM);
    assert_eq!(service.status(), Some(0));
    world.is_clean();
    assert!(!world.runtime().join("offload").exists());
}

#[test]
fn a_killed_program_leaves_its_device_free() {
    let world = World::new();
    let service = service(&world, &[]);
    for number in 0..10 {
        let kernel = "gpu=echo >> begun; exec sleep 100";
        let program = world.spawn(&["offload", "run", "--name", "victim", "--kernel", kernel]);
        // While it waits, or while it runs.
        if number % 2 == 0 {
            until("it to run", || runs_on_gpu(&world).as_deref() == Some("victim"));
        }
        program.signal(libc::SIGKILL);
        drop(program);
        until("the device to be free", || runs_on_gpu(&world).is_none());
    }
    let next = world.run(&["offload", "run", "--kernel", "gpu=exit 7"]);
    assert_eq!(next.status.code(), Some(7));
    drop(service);
}

#[test]
fn a_command_runs_on_the_core_that_it_was_given() {
    let world = World::new();
    let service = service(&world, &[]);
    let kernel = "core=echo $COPLACE_CORES; grep Cpus_allowed_list /proc/self/status";
    let output = world.run(&["offload", "run", "--kernel", kernel]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (given, allowed) = text.trim().split_once('\n').unwrap();
    assert_eq!(allowed.split_whitespace().last(), Some(given), "{output:?}");
    drop(service);
}

#[test]
fn without_a_service_the_first_kernel_runs() {
    let world = World::new();
    let output =
        world.run(&["offload", "run", "--kernel", "gpu=echo on gpu", "--kernel", "core=echo on core"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "on gpu\n");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("no offload service runs: echo runs its first kernel, for gpu"), "{printed}");
    world.fails(&["offload", "status"], 1, &["no offload service runs", "coplace offload serve"]);
    world.fails(&["offload", "set"], 2, &["--strategy"]);
    world.fails(&["offload", "run", "--kernel", "./solve"], 2, &["KIND=COMMAND"]);
}

#[test]
fn strategies_are_swapped_while_programs_wait() {
    let world = World::new();
    world.file("idle.lua", "function resource_free(node, resource) end\n");
    world.file("wrong.lua", "function resource_free(\n");
    let service = service(&world, &["--strategy", "idle.lua"]);
    let mut waiting = world.spawn(&["offload", "run", "--kernel", "gpu=true"]);
    until("it to wait", || status(&world)["waiting"] == 1);
    let set = |strategy: &str| world.run(&["offload", "set", "--strategy", strategy]);
    let refused = set("wrong.lua");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("wrong.lua:"), "{refused:?}");
    assert_eq!(status(&world)["strategy"], "idle.lua");
    assert!(set("adaptive").status.success());
    assert_eq!(waiting.status(), Some(0));
    assert!(world.run(&["offload", "set", "--governor", "low"]).status.success());
    assert_eq!(
        (status(&world)["strategy"].as_str(), status(&world)["governor"].as_str()),
        (Some("adaptive"), Some("low"))
    );
    // A second service would take the first one's programs.
    let second = world.run(&["offload", "serve"]);
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    let foreign = world.run(&["offload", "serve", "--cores", "4000"]);
    assert_eq!(foreign.status.code(), Some(2), "{foreign:?}");
    drop(service);
}

#[test]
fn a_killed_service_takes_no_program_along() {
    let world = World::new();
    world.file("idle.lua", "function resource_free(node, resource) end\n");
    let service = service(&world, &["--strategy", "idle.lua"]);
    let mut waiting = world.spawn(&["offload", "run", "--kernel", "gpu=echo >> ended"]);
    until("it to wait", || status(&world)["waiting"] == 1);
    service.signal(libc::SIGKILL);
    drop(service);
    assert_eq!(waiting.status(), Some(0));
    assert!(world.path("ended").exists());
    // What it left behind is in nobody's way.
    let next = self::service(&world, &[]);
    assert!(world.run(&["offload", "run", "--kernel", "gpu=true"]).status.success());
    drop(next);
}

#[test]
fn a_python_program_runs_its_kernels_with_and_without_a_service() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        return coplace_tests::skipped("kernels of a Python program", "there is no python3");
    }
    let world = World::new();
    world.file(
        "tasks.py",
        "from coplace import offload\n\
         with offload.connect('tasks') as node:\n    \
             kernels = {'gpu': lambda start: start.resource, 'core': lambda start: start.resource}\n    \
             print(node.run(kernels), node.run({'core': lambda start: start.kind}, {'core': 0.5}))\n    \
             try:\n        node.run({'fpga': print})\n    \
             except offload.Refused as why:\n        print(why)\n",
    );
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/python");
    let line = format!(
        "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={module} COPLACE=$(command -v coplace) python3 tasks.py"
    );
    let alone = stdout(&world, &line);
    assert!(alone.starts_with("None core\n"), "{alone}");
    let service = service(&world, &[]);
    assert_eq!(stdout(&world, &line), "gpu0 core\nnone of its kernels is for a resource that is here\n");
    drop(service);
}
