//! Policies in Lua: what they can do, what they cannot, and what is said when they are wrong.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coplace_policy::trial::{self, Kinds, Random, World};
use coplace_policy::{
    Decision, Lever, Memory, Neighbours, Policy, Predictions, Settings, UnknownPolicy, by_name, lua,
};
use plan::{Remark, Snapshot};
use support::from_environment;
use topology::Machine;

const TA: &str = include_str!("../../../docs/policies/lua/ta.lua");
const WIDER: &str = include_str!("../../../docs/policies/lua/wider.lua");

fn settings(text: &str) -> Settings {
    Settings { script: Some(text.to_owned()), ..Settings::default() }
}

fn policy(text: &str) -> Box<dyn Policy> {
    by_name("mine.lua", &settings(text)).unwrap_or_else(|error| panic!("{error}"))
}

/// A policy whose decide has this body.
fn deciding(body: &str) -> Box<dyn Policy> {
    policy(&format!("function decide(snapshot, memory)\n{body}\nend"))
}

fn snapshot(apps: &str) -> Snapshot {
    let machine = Arc::new(Machine::synthetic("pack:2 [numa] l3:1 core:4 pu:1").unwrap());
    Snapshot::for_machine(machine).with_apps(apps).unwrap()
}

fn decided(body: &str, apps: &str) -> Decision {
    deciding(body).try_decide(&snapshot(apps), &Memory::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The plan's text.
fn plan(body: &str, apps: &str) -> String {
    decided(body, apps).plan.to_string()
}

/// What is said of a decision that fails.
fn failure(body: &str, apps: &str) -> String {
    match deciding(body).try_decide(&snapshot(apps), &Memory::default()) {
        Ok(decision) => panic!("it decided: {}", decision.plan),
        Err(failed) => failed.to_string(),
    }
}

/// What is said of a file that is no policy.
fn refusal(text: &str) -> String {
    match by_name("mine.lua", &settings(text)) {
        Ok(_) => panic!("it was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_plan_is_text_or_put_together_from_parts() {
    let both = "a; b";
    assert_eq!(plan("return 'side_by_side [a on 0-3, b on 4-7]'", both), "side_by_side [a on 0-3, b on 4-7]");
    assert_eq!(
        plan("return side_by_side { run('a', '0-3'), run(snapshot.apps[2], {4, 5}, { threads = 1 }) }", both),
        "side_by_side [a on 0-3, b on 4-5 x 1]"
    );
    assert_eq!(
        plan(
            "return in_turn({ run('a', 0), { slice_ns = 5000000, plan = run('b', 0) } }, { mode = 'filling' })",
            both
        ),
        "in_turn filling [100ms a on 0, 5ms b on 0]"
    );
    assert_eq!(
        plan("return mixed({ run('a', '0-1', { bind = 'each' }), 'b on 1' }, { [1] = 'b' })", both),
        "mixed {1: b} [a on 0-1 bind each, b on 1]"
    );
    assert_eq!(plan("return side_by_side { mixed {}, in_turn {} }", ""), "idle");
}

#[test]
fn an_unmentioned_program_waits_or_is_suspended() {
    let decision = decided("return run('b', snapshot.usable)", "a; b; c suspended");
    assert_eq!(decision.plan.to_string(), "b on 0-7 waiting [a] suspended [c]");
    assert_eq!(decision.report.lines(), ["a: no place in the plan, waiting."]);
    assert_eq!(plan("return 'a on 0 waiting [b]'", "a; b"), "a on 0 waiting [b]");
}

#[test]
fn the_snapshot_has_all_that_a_policy_must_know() {
    let body = "
        local app = snapshot.apps[1]
        print(app.name, app.malleability, app.threads, app.fewest_cpus, app.most_cpus, app.room, app.resizable)
        print(snapshot.usable, #snapshot.allowed, snapshot.now_ns, snapshot.settings.slice_ns)
        local machine = snapshot.machine
        print(machine.root.level, #machine.levels.package, machine.levels.numa[2].cpus, machine.root.children[1].level)
        for _, shape in ipairs(snapshot.shapes) do print(shape.width, #shape.places, shape.places[1]) end
        return built_in('TA')";
    let lines = decided(body, "lg rigid max 2 within 2-5").report.lines();
    assert_eq!(lines[0], "lg rigid 2 2 2 2-5 false");
    assert_eq!(lines[1], "0-7 8 0 100000000");
    assert_eq!(lines[2], "node 2 4-7 package");
    assert_eq!(lines[3..6], ["8 1 0-7", "4 2 0-3", "2 4 0-1"]);
}

#[test]
fn cpu_sets_are_computed_with() {
    let body = "
        local a, b = cpus('0-3'), cpus { 2, 3, 4 }
        print(a & b, a | b, a - b, #a, a == cpus('0-3'), a <= (a | b), a < a, b:contains(4), b:lowest())
        print(a:take(2), a:take(2, '3'), a:meets(7), table.concat(b:list(), ' '), a & '1-2', cpus())
        return 'idle'";
    let lines = decided(body, "").report.lines();
    assert_eq!(lines, ["2-3 0-4 0-1 4 true true false true 2", "0-1 0,3 false 2 3 4 1-2 "]);
}

#[test]
fn nothing_is_carried_over_but_memory() {
    let counting = policy(
        "calls = 0\nlocal hidden = 0\nfunction decide(snapshot, memory)\n\
         calls = calls + 1\nhidden = hidden + 1\nstring.mine = (rawget(string, 'mine') or 0) + 1\n\
         memory.calls = (memory.calls or 0) + 1\nmemory.seen = memory.seen or {}\n\
         table.insert(memory.seen, snapshot.usable:take(memory.calls))\n\
         print(calls, hidden, string.mine, memory.calls, memory.seen[#memory.seen])\nreturn 'idle'\nend",
    );
    let mut memory = Memory::default();
    for call in 1..4u32 {
        let decision = counting.try_decide(&snapshot(""), &memory).unwrap();
        let last = if call == 1 { "0".to_owned() } else { format!("0-{}", call - 1) };
        assert_eq!(decision.report.lines(), [format!("1 1 1 {call} {last}")]);
        let text = serde_json::to_string(&decision.memory).unwrap();
        memory = serde_json::from_str(&text).unwrap();
        assert_eq!(memory, decision.memory, "memory survives being written down");
        assert_eq!(counting.try_decide(&snapshot(""), &memory), counting.try_decide(&snapshot(""), &memory));
    }
}

#[test]
fn values_that_cannot_be_remembered_are_named() {
    for (body, wanted) in [
        ("memory.f = print", "memory.f cannot be remembered: it is a function"),
        ("memory.x = { y = { 0/0 } }", "memory.x.y[1] cannot be remembered: it is no finite number"),
        ("memory.x = { 1, 2, a = 3 }", "memory.x cannot be remembered: its keys"),
        ("memory[1.5] = 3", "has a number as a key"),
        ("memory.me = memory", "contain themselves"),
        ("memory.plan = run('a', 0)", "memory.plan cannot be remembered: it is a part of a plan"),
    ] {
        let error = failure(&format!("{body}\nreturn 'a on 0'"), "a");
        assert!(error.starts_with("mine.lua: ") && error.contains(wanted), "{error}");
    }
}

#[test]
fn tables_are_walked_in_order_of_their_keys() {
    let body = "
        local numbered = { z = 1, a = 2, [10] = 3, [2.5] = 4, [true] = 5, [false] = 6, m = 7 }
        local order = {}
        for key, value in pairs(numbered) do table.insert(order, tostring(key) .. '=' .. value) end
        print(table.concat(order, ' '))
        local many, last = {}, ''
        for i = 1, 500 do many['k' .. (i * 7919) % 1000] = i end
        for key in pairs(many) do assert(last < key) last = key end
        print(next(numbered), next({}), last)
        return 'idle'";
    assert_eq!(decided(body, "").report.lines(), ["2.5=4 10=3 a=2 m=7 z=1 false=6 true=5", "2.5 nil k999"]);
    let error = failure("local t = { [{}] = 1 }\nfor k in pairs(t) do end\nreturn 'idle'", "");
    assert!(error.starts_with("mine.lua:3: a table is a key here"), "{error}");
}

#[test]
fn sorting_keeps_equal_elements_in_order() {
    let body = "
        local list = {}
        for i = 1, 300 do list[i] = { key = (i * 7) % 5, at = i } end
        table.sort(list, function(a, b) return a.key < b.key end)
        for i = 2, 300 do
          local a, b = list[i - 1], list[i]
          assert(a.key < b.key or a.key == b.key and a.at < b.at, 'not stable')
        end
        local words = { 'c', 'a', 'b' }
        table.sort(words)
        print(table.concat(words, ','))
        return 'idle'";
    assert_eq!(decided(body, "").report.lines(), ["a,b,c"]);
}

#[test]
fn text_holds_no_addresses() {
    let body = "
        print({}, print, tostring({}), string.format('%s %5.1f %d', {}, 2.25, 7))
        print(setmetatable({}, { __tostring = function() return 'me' end }))
        return 'idle'";
    assert_eq!(decided(body, "").report.lines(), ["table function table table   2.2 7", "me"]);
    assert!(failure("return string.format('%p', {})", "").contains("addresses"));
}

#[test]
fn files_clock_and_randomness_are_not_there() {
    for (code, wanted) in [
        ("io.open('x')", "no 'io' here: a policy reads and writes no files"),
        ("os.time()", "no 'os' here: a policy knows no clock"),
        ("require 'x'", "no 'require' here"),
        ("load('return 1')", "no 'load' here"),
        ("dofile('x')", "no 'dofile' here"),
        ("debug.sethook()", "no 'debug' here"),
        ("coroutine.create(decide)", "no 'coroutine' here"),
        ("pcall(decide)", "no 'pcall' here"),
        ("collectgarbage()", "no 'collectgarbage' here"),
        ("math.random()", "no math.random: a policy is not random"),
        ("('x'):rep(3):match('x')", "no string.match: patterns can run for ever"),
        ("getmetatable('').__index = nil", "getmetatable takes a table"),
        ("setmetatable(_G, nil)", "cannot change a protected metatable"),
        ("setmetatable({}, { __gc = print })", "no finalisers"),
        ("typo = snapshot.app", "a snapshot has no 'app'"),
        ("print(undefined_name)", "no 'undefined_name' here"),
    ] {
        let error = failure(&format!("{code}\nreturn 'idle'"), "");
        assert!(error.starts_with("mine.lua:2: ") && error.contains(wanted), "{code}: {error}");
    }
    assert!(refusal("local x <close> = nil\nfunction decide() end").contains("mine.lua:1:"));
    assert!(refusal("\u{1b}Lua").contains("compiled"));
}

#[test]
fn a_script_that_runs_away_is_stopped() {
    for (code, wanted) in [
        ("while true do end", "more than 20000000 instructions"),
        ("local function f() return f() end f()", "more than 20000000 instructions"),
        ("local t = {} while true do t[#t + 1] = {} end", "more than 64 MiB"),
        ("local s = 'x' while true do s = s .. s end", "more than 64 MiB"),
        ("local s = '' while true do s = s .. 'x' end", "more than 64 MiB"),
        ("local s = cpus('0-65535') while true do s = s | s end", "more than 64 MiB"),
        ("local t = run('a', 0) while true do t = mixed { t, t } end", "more than 64 MiB"),
        ("while true do built_in('CO') end", "more than 20000000 instructions"),
        ("local function f() return 1 + f() end f()", "more than 64 MiB"),
        ("string.rep('', 1 << 60)", "no more than 65536"),
        ("table.unpack({}, 1, 1 << 40)", "more than 65536"),
        ("table.concat({}, '', 1, 1 << 60)", "has 0 elements"),
    ] {
        let began = std::time::Instant::now();
        let error = failure(&format!("{code}\nreturn 'idle'"), "a");
        assert!(
            error.contains(wanted) && (error.starts_with("mine.lua:2: ") || wanted.contains("MiB")),
            "{code}: {error}"
        );
        assert!(began.elapsed().as_secs() < 20, "{code} took {:?}", began.elapsed());
    }
    assert!(refusal("while true do end").contains("20000000 instructions"));
}

#[test]
fn errors_name_the_file_and_the_line() {
    assert!(refusal("function decide()\n  retrun 1\nend").starts_with("mine.lua:2: "));
    assert!(refusal("x = 1").contains("no function decide"));
    assert!(refusal("decide = 3").contains("decide is a integer, not a function"));
    assert!(
        refusal("promise = { speed = 1 }\nfunction decide() end").contains("there is no promise 'speed'")
    );
    for (body, wanted) in [
        ("local x = nil\nreturn x.y", "mine.lua:3: attempt to index a nil value (local 'x')"),
        ("error('too bad')", "mine.lua:2: too bad"),
        ("assert(1 == 2, 'sums')", "mine.lua:2: sums"),
        ("\nreturn run('b', 0)", "mine.lua:3: there is no program 'b' in the snapshot"),
        ("return run('a', '')", "mine.lua:2: a cannot run: it is given no CPU"),
        ("return run('a', 'x')", "mine.lua:2: argument 2: 'x' is not a CPU list"),
        ("return run('a', 0, { thread = 1 })", "mine.lua:2: run: there is no 'thread'"),
        ("return side_by_side { 3 }", "mine.lua:2: a integer stands where a part of a plan"),
        ("return 'a onto 0'", "mine.lua: the plan that decide returned: column 3"),
        ("return nil", "mine.lua: decide returned nothing"),
        ("return { memory = {} }", "mine.lua: decide returned a table without a plan"),
        ("return { plan = 'a on 0', wake = 1 }", "mine.lua: decide returned 'wake'"),
        ("return { run('a', 0) }", "mine.lua: decide returned a list"),
        ("return built_in('BEST')", "mine.lua:2: there is no policy 'BEST'"),
        (
            "return spread({ '0-1', '1-2' }, snapshot.apps)",
            "mine.lua:2: spread: the places overlap at CPUs 1-2",
        ),
    ] {
        let error = failure(body, "a");
        assert!(error.starts_with(wanted), "{body}: {error}");
    }
    assert!(matches!(by_name("x.lua", &Settings::default()), Err(UnknownPolicy::NoScript { .. })));
}

#[test]
fn a_built_in_policy_can_be_asked_and_is_remembered_for() {
    let ours = deciding("return { plan = built_in('CO'), report = { 'as CO' } }");
    let theirs = by_name("CO", &Settings::default()).unwrap();
    let (mut mine, mut its) = (Memory::default(), Memory::default());
    for apps in ["a", "a; b", "a; b; c", "a; b; c; d rigid max 3 team 3", "b; c"] {
        let (one, other) =
            (ours.try_decide(&snapshot(apps), &mine).unwrap(), theirs.decide(&snapshot(apps), &its));
        assert_eq!(one.plan, other.plan);
        let (last, others) = one.report.remarks.split_last().unwrap();
        assert_eq!((others, last), (&other.report.remarks[..], &Remark::Script("as CO".into())));
        assert_eq!((&one.memory.level, &one.memory.places), (&other.memory.level, &other.memory.places));
        (mine, its) = (one.memory, other.memory);
    }
}

#[test]
fn a_report_contains_what_the_checker_demands() {
    let body = "return { plan = built_in('UE'), report = { 'so', { left_over = '3', width = 2 }, { standstill_ns = 5 } } }";
    let remarks = decided(body, "").report.remarks;
    assert_eq!(
        remarks[1..3],
        [Remark::Script("so".into()), Remark::LeftOver { cpus: "3".parse().unwrap(), width: 2 }]
    );
    assert!(matches!(remarks[3], Remark::Standstill { longest_ns: 5, .. }), "{remarks:?}");
    let wrong = deciding("return { plan = 'idle', report = { { left = '3' } } }");
    let error = wrong.try_decide(&snapshot(""), &Memory::default()).unwrap_err().to_string();
    assert!(error.contains("left_over = CPUs"), "{error}");
}

#[test]
fn names_and_promises_are_the_file_s() {
    let policy = policy(
        "words = 'mine'\npromise = { share_ratio = 2, waiting = 3, keeps_cpus = true }\nfunction decide() end",
    );
    assert_eq!(policy.name(), "mine (mine.lua)");
    let promise = policy.promise();
    assert_eq!(promise.waiting_bound, Some(plan::WaitingBound::Terminations(3)));
    assert_eq!(promise.share_bound, Some(plan::ShareBound::Ratio(2.0)));
    assert!(promise.keeps_cpus && !promise.equal_shapes);
}

#[test]
fn without_a_fallback_all_programs_run_everywhere() {
    let decision = deciding("error('no')").decide(&snapshot("a; b"), &Memory::default());
    assert_eq!(decision.plan.to_string(), "mixed [a on 0-7, b on 0-7]");
    assert!(decision.report.lines()[0].ends_with(" (mine.lua) came to no plan: mine.lua:2: no"));
}

/// A sequence of events in which TA in Lua and TA in Rust are asked the same.
fn both_ways(seed: u64, own: &AtomicU64) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let kinds = if random.chance(50) { Kinds::Plain } else { Kinds::All };
    let mut world = World::new(&mut random, kinds);
    let settings = trial::settings(&mut random);
    // What the example leaves to the built-in policy is told apart by what it reports.
    let rust = by_name("TA", &settings).unwrap();
    let lua = by_name("ta.lua", &Settings { script: Some(TA.to_owned()), ..settings }).unwrap();
    let (mut ours, mut theirs) = (Memory::default(), Memory::default());
    for step in 0..20 {
        world.step(&mut random);
        let one = lua.try_decide(&world.snapshot, &ours).map_err(|failed| failed.to_string())?;
        let other = rust.decide(&world.snapshot, &theirs);
        if one.plan != other.plan {
            return Err(format!("step {step}\n  in Lua:  {}\n  in Rust: {}", one.plan, other.plan));
        }
        own.fetch_add(u64::from(one.memory.level == Default::default()), Ordering::Relaxed);
        (ours, theirs) = (one.memory, other.memory);
        world.follow(&other.plan);
    }
    Ok(20)
}

#[test]
fn ta_in_lua_makes_the_plans_of_ta() {
    let (first, cases) = (from_environment("COPLACE_SEED", 1), from_environment("COPLACE_LUA_CASES", 200));
    let own = AtomicU64::new(0);
    match trial::sequences(first, cases, &|seed| both_ways(seed, &own)) {
        Ok(decisions) => {
            let own = own.into_inner();
            assert!(own * 10 > decisions * 7, "only {own} of {decisions} plans were the example's own");
        }
        Err((seed, why)) => panic!(
            "{why}\nrepeat with: COPLACE_SEED={seed} COPLACE_LUA_CASES=1 cargo test -p coplace-policy --test lua ta_in_lua"
        ),
    }
}

#[test]
fn the_template_of_a_policy_passes_the_checker() {
    let (first, cases) = (from_environment("COPLACE_SEED", 1), from_environment("COPLACE_LUA_CASES", 200));
    for (name, text) in [("start.lua", lua::START), ("ta.lua", TA), ("wider.lua", WIDER)] {
        let tried = |seed| {
            let make = |settings: &Settings| {
                let settings = Settings { script: Some(text.to_owned()), ..settings.clone() };
                by_name(name, &settings).unwrap()
            };
            trial::sequence(seed, &make)
        };
        if let Err((seed, why)) = trial::sequences(first, cases, &tried) {
            panic!(
                "{name}: {why}\nrepeat with: COPLACE_SEED={seed} COPLACE_LUA_CASES=1 cargo test -p coplace-policy \
                 --test lua what_we_give"
            );
        }
    }
}

/// Of a stub's class its fields, in order of their names.
fn annotated(class: &str) -> Vec<String> {
    let head = format!("---@class coplace.{class}");
    let of_class = lua::STUBS.lines().skip_while(|line| *line != head).skip(1);
    let fields = of_class.map_while(|line| line.strip_prefix("---@field "));
    let mut names: Vec<String> =
        fields.map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()).collect();
    names.sort();
    names
}

#[test]
fn the_annotations_name_what_a_policy_can_use_and_nothing_else() {
    // What Lua's own documentation describes.
    let body = "
        local own = {}
        for _, name in ipairs { 'assert', 'error', 'getmetatable', 'ipairs', 'math', 'next', 'pairs', 'rawequal', 'rawget',
          'rawlen', 'rawset', 'select', 'setmetatable', 'string', 'table', 'tonumber', 'tostring', 'type', '_G', '_VERSION' } do
          own[name] = true
        end
        for name in pairs(_G) do if not own[name] then print('function ' .. name) end end
        local app, machine = snapshot.apps[1], snapshot.machine
        local _ = snapshot.shapes
        local tables = { App = app, Evidence = app.evidence, Known = app.evidence.left_ns, Snapshot = snapshot,
          Settings = snapshot.settings, Machine = machine, Object = machine.root, Cache = machine.caches[1],
          Shape = snapshot.shapes[1] }
        for class, fields in pairs(tables) do
          for name in pairs(fields) do print(class .. ' ' .. name) end
        end
        return 'idle'";
    let settings = Settings {
        allowed_widths: Some(vec![2]),
        rebalance_every_ns: Some(1),
        neighbours: Some(Neighbours::Twins),
        ..settings(&format!("function decide(snapshot)\n{body}\nend"))
    };
    let app = "a rigid team 2 max 3 within 0-3 speedup 2:1900 left 1s move 1s bandwidth 1 cache 1";
    let mut machine = Machine::synthetic("pack:2 [numa] l3:1 core:4 pu:1").unwrap();
    machine.capacities = BTreeMap::from([(0, 1024)]);
    machine.root.os_index = Some(0);
    (machine.caches[0].size_bytes, machine.caches[0].line_bytes) = (Some(1 << 20), Some(64));
    machine.distances =
        Some(topology::Distances { nodes: vec![0, 1], matrix: vec![vec![10, 21], vec![21, 10]] });
    let snapshot = Snapshot::for_machine(Arc::new(machine)).with_apps(app).unwrap();
    let stood = [(snapshot.apps[0].id.clone(), snapshot.usable.clone())].into_iter().collect();
    let memory = Memory { places: stood, ..Memory::default() };
    let policy = by_name("mine.lua", &settings).unwrap();
    let lines =
        policy.try_decide(&snapshot, &memory).unwrap_or_else(|error| panic!("{error}")).report.lines();
    let mut shares: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (class, name) in lines.iter().filter_map(|line| line.split_once(' ')) {
        // What is told of programs that are not in the plan is no field.
        if !class.ends_with(':') {
            shares.entry(class).or_default().push(name);
        }
    }
    let functions = shares.remove("function").expect("functions");
    let mut stubs: Vec<&str> = lua::STUBS
        .lines()
        .filter_map(|line| line.strip_prefix("function ")?.split_once('(').map(|(name, _)| name))
        .filter(|name| !name.contains(':') && *name != "decide")
        .collect();
    stubs.sort_unstable();
    let own_of_ours: Vec<&str> = functions.into_iter().filter(|name| *name != "decide").collect();
    assert_eq!(own_of_ours, stubs);
    assert_eq!(shares.len(), 9, "{shares:?}");
    for (class, fields) in shares {
        assert_eq!(fields, annotated(class), "fields of coplace.{class}");
    }
    let letters: Vec<String> =
        coplace_policy::list().iter().map(|of| format!("\"{}\"", of.letters)).collect();
    let built_in =
        lua::STUBS.lines().find_map(|line| line.strip_prefix("---@param policy ")).expect("built_in");
    assert_eq!(built_in.split('|').collect::<BTreeSet<_>>(), letters.iter().map(String::as_str).collect());
}

#[test]
fn every_setting_reaches_a_script() {
    let json = serde_json::to_value(Settings {
        allowed_widths: Some(vec![2]),
        rebalance_every_ns: Some(1),
        rebalance_within_nodes: true,
        neighbours: Some(Neighbours::Twins),
        without: vec![Lever::Widths],
        ..Settings::default()
    });
    let mut names: Vec<String> = json.unwrap().as_object().unwrap().keys().cloned().collect();
    // What says which policy it is.
    names.retain(|name| !["plan", "others", "script"].contains(&name.as_str()));
    names.sort();
    assert_eq!(names, annotated("Settings"));
}

#[test]
fn knowledge_about_programs_reaches_a_script() {
    let body = "
        for _, app in ipairs(snapshot.apps) do
          local left = app.evidence.left_ns
          print(app.program, speed_milli(app, 3), app.speedup_milli and app.speedup_milli[4],
            left and left.value, left and left.source, app.evidence.cache_milli)
        end
        print(predicted_slowdown('cg.2', 'mg'))
        print(predicted_slowdown('mg', 'x'))
        print(snapshot.settings.neighbours, snapshot.settings.settle_ns, snapshot.settings.grace_ns)
        return run('mg', '0-1')";
    let script = |neighbours| Settings {
        neighbours,
        ..settings(&format!("function decide(snapshot, memory)\n{body}\nend"))
    };
    let apps = "cg.2 speedup 2:1800,4:3000 left 3s bandwidth 900; mg of mg.B bandwidth 900; x";
    let decided = |neighbours| {
        let policy = by_name("mine.lua", &script(neighbours)).unwrap();
        policy.try_decide(&snapshot(apps), &Memory::default()).unwrap_or_else(|error| panic!("{error}"))
    };
    let lines = decided(None).report.lines();
    assert_eq!(lines[0], "cg 2400 3000 3000000000 remembered nil");
    assert_eq!(lines[1..3], ["mg.B nil nil nil nil nil", "x nil nil nil nil nil"]);
    assert_eq!(lines[3..6], ["nil nil", "nil nil", "nil 500000000 1000000000"]);
    // As `common::contention`: 1 + 0.9 x (1.8 / 1.6 - 1).
    assert_eq!(decided(Some(Neighbours::Profile)).report.lines()[3..5], ["1113 6", "nil nil"]);
    let predictions = Predictions {
        programs: vec!["mg.B".into(), "cg".into()],
        cells_milli: vec![(1, 2), (3, 4), (1500, 20), (5, 6)],
    };
    let lines = decided(Some(Neighbours::Predicted(predictions))).report.lines();
    assert_eq!(lines[3..6], ["1500 20", "nil nil", "predicted 500000000 1000000000"]);
}

#[test]
fn a_script_gets_the_same_account_of_past_plans_as_adaptive() {
    let ours = deciding(
        "for _, app in ipairs(snapshot.apps) do print(app.name, app.used_ns, app.entitled_ns) end
         return built_in('adaptive')",
    );
    let theirs = by_name("adaptive", &Settings::default()).unwrap();
    let mut now = snapshot("a speedup 2:1900,4:3600,8:7000 team 8; b speedup 2:1000 team 2; c");
    let (mut mine, mut its) = (Memory::default(), Memory::default());
    for second in 0..4 {
        now.now_ns = second * 1_000_000_000;
        let one = ours.try_decide(&now, &mine).unwrap();
        let other = theirs.decide(&now, &its);
        assert_eq!((&one.plan, &one.memory.account), (&other.plan, &other.memory.account));
        if second == 3 {
            // A third of eight CPUs, in thousandths of a CPU, for three seconds.
            assert!(one.report.lines()[0].ends_with(" 7998000000"), "{:?}", one.report.lines());
        }
        (mine, its) = (one.memory, other.memory);
    }
    assert!(!mine.account.is_empty());
}

#[test]
fn the_example_widens_a_scaling_program_only_where_known() {
    let policy = by_name("wider.lua", &settings(WIDER)).unwrap();
    let decided =
        |apps: &str| policy.try_decide(&snapshot(apps), &Memory::default()).unwrap().plan.to_string();
    assert_eq!(decided("a; b"), "side_by_side [a on 0-3, b on 4-7]");
    assert_eq!(
        decided("a speedup 2:1900,4:3600,8:7000; b speedup 2:1000"),
        "side_by_side [a on 0-6, b on 7]"
    );
    assert_eq!(decided("a speedup 2:1000; b"), "side_by_side [a on 0, b on 1-7]");
}
