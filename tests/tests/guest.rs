//! coplace on a machine of two packages and two NUMA nodes with nothing but cgroup v2, in emulation:
//! where programs are put, by what that machine's kernel reports. Times mean nothing there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use coplace_tests::guest::{Guest, PATIENCE, Session, Sight, breathe_llvm};
use coplace_tests::skipped_here;
use coplace_tests::teams::{self, Mark, Program};

/// What every guest takes along; the same for all of them, so that they are made once.
const TESTS: &[&str] = &["groups_live"];

/// Of the programs in `tests/programs/teams`, those that go in where COPLACE_TEAMS does not say "all".
const TEAMS: &[&str] = &[
    "static_double-gcc-O2",
    "dynamic-clang-O2",
    "own_bounds-gcc-O2",
    "max_once-clang-O2",
    "buffer_per_thread-gcc-O2",
    "thread_private-clang-O2",
    "own_barrier-gcc-O2",
    "double_merge-gcc-O2",
];

fn all_teams() -> bool {
    std::env::var("COPLACE_TEAMS").is_ok_and(|wanted| wanted == "all")
}

fn team_programs() -> Vec<Program> {
    let all = all_teams();
    let goes_in = |program: &Program| TEAMS.contains(&program.file()) || all && program.flags == "-O2";
    let programs: Vec<Program> = teams::listed().into_iter().filter(goes_in).collect();
    teams::built(&programs);
    programs
}

/// What else every guest takes along.
fn kept() -> Vec<PathBuf> {
    let programs = team_programs();
    let libraries = programs.iter().filter_map(Program::library);
    let paths = programs.iter().map(|program| program.path.clone()).chain(libraries);
    paths.chain([teams::neighbour("resizable"), teams::neighbour("rigid")]).collect()
}

/// The one guest that all tests share, each with a daemon of its own in it; where it cannot be booted, the test counts
/// as skipped.
fn two_packages() -> Option<MutexGuard<'static, Result<Guest, String>>> {
    static GUEST: OnceLock<Mutex<Result<Guest, String>>> = OnceLock::new();
    Guest::shared(&GUEST, || Guest::boot("two-packages", TESTS, &kept()))
}

const BREATHE: &str = "/apps/breathe 10 1";

/// One program, two, four, under a policy that gives each whole packages or equal parts of one.
fn one_two_and_four(policy: &str) {
    let Some(mut guest) = two_packages() else { return };
    let mut session = guest.as_mut().unwrap().session(&format!("--policy {policy}"));
    for (names, places) in
        [(&["a"][..], &["0-7"][..]), (&["b"], &["0-3", "4-7"]), (&["c", "d"], &["0-1", "2-3", "4-5", "6-7"])]
    {
        names.iter().for_each(|name| session.start(name, "", BREATHE));
        session.until_all(&format!("{policy}: {places:?}"), |sights| Session::places(sights) == *places);
    }
    session.end();
}

#[test]
fn equal_parts_are_machine_packages_and_half_packages() {
    one_two_and_four("TA");
}

#[test]
fn coscheduled_equal_parts_are_machine_packages_and_halves() {
    one_two_and_four("CO");
}

/// How often the first ran while the second stood still, the other way round, and both ran: by a
/// file of their groups that says `1` for who is not in turn.
fn turns(session: &mut Session, file: &str, names: [&str; 2]) -> (u32, u32, u32) {
    let [one, other] = names.map(|name| format!("$(echo /sys/fs/cgroup/coplace/*/{name}/{file})"));
    // The first is read again: a switch in between makes a sample worthless.
    let samples = session.sh(&format!(
        "one={one} other={other} i=0
         while [ $i -lt 60 ]; do
            read -r x < $one; read -r y < $other; read -r z < $one
            echo $x$y$z; i=$((i + 1)); sleep 0.02
         done"
    ));
    let count = |what: &str| samples.lines().filter(|sample| *sample == what).count() as u32;
    (count("010"), count("101"), count("000"))
}

/// Waits until two programs are seen to take turns.
fn check_turns(session: &mut Session, file: &str, names: [&str; 2]) {
    session.until("they take turns", |session| {
        let (one, other, both) = turns(session, file, names);
        println!("one ran alone in {one} samples, the other in {other}, both in {both}");
        // Without turns both run in all of them; a shell in an emulated machine looks three times in the
        // time of a slice, and sees some switches as both; and sometimes it is held up for long.
        (one >= 5 && other >= 5 && both * 2 <= one + other).then_some(())
    });
}

/// The CPUs that two or more programs have, and who they are.
fn shared(sights: &BTreeMap<String, Sight>) -> Vec<(&str, Vec<&str>)> {
    let mut by_place: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, sight) in sights {
        by_place.entry(&sight.cpus).or_default().push(name);
    }
    by_place.into_iter().filter(|(_, names)| names.len() > 1).collect()
}

#[test]
fn allowed_sizes_alternate_on_whole_packages_by_freezing() {
    let Some(mut guest) = two_packages() else { return };
    let options = "--policy CO --set allowed_widths=[8] --slice 50ms";
    let mut session = guest.as_mut().unwrap().session(options);
    session.start("a", "", BREATHE);
    session.start("b", "", BREATHE);
    session.until_all("both have the machine", |sights| Session::places(sights) == ["0-7", "0-7"]);
    check_turns(&mut session, "cgroup.freeze", ["a", "b"]);
    session.set_policy("CO --set allowed_widths=[4] --set slice_ns=50000000");
    session.start("c", "", BREATHE);
    let sights = session.until_all("three share two packages", |sights| {
        let places = Session::places(sights);
        places.contains(&"0-3") && places.contains(&"4-7") && shared(sights).len() == 1
    });
    let (_, pair) = &shared(&sights)[0];
    check_turns(&mut session, "cgroup.freeze", [pair[0], pair[1]]);
    session.end();
}

#[test]
fn filling_turns_are_taken_by_cpu_idle() {
    let Some(mut guest) = two_packages() else { return };
    let options = "--policy CO --set allowed_widths=[8] --slice 50ms --turns idle";
    let mut session = guest.as_mut().unwrap().session(options);
    session.start("a", "", BREATHE);
    session.start("b", "", BREATHE);
    session.until_all("both have the machine", |sights| Session::places(sights) == ["0-7", "0-7"]);
    check_turns(&mut session, "cpu.idle", ["a", "b"]);
    assert!(session.sample().values().all(|sight| !sight.frozen));
    session.end();
}

/// CPU time of each program over `seconds` in the guest, in microseconds; `None` if the guest was held
/// up meanwhile: its clock goes on while it is, for whoever was running.
fn cpu_times(session: &mut Session, names: [&str; 3], seconds: f64) -> Option<[f64; 3]> {
    let printed = session.sh(&format!(
        "look() {{ cat /proc/uptime; grep -H usage_usec /sys/fs/cgroup/coplace/*/*/cpu.stat; }}
         look; sleep {seconds:.3}; look"
    ));
    let uptimes = printed.lines().filter(|line| !line.contains("usage_usec"));
    let uptimes: Vec<f64> = uptimes.map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    let times = names.map(|name| {
        let of = |line: &&str| line.contains(&format!("/{name}/cpu.stat"));
        let times = printed.lines().filter(of).map(|line| line.rsplit(' ').next().unwrap());
        let times: Vec<f64> = times.map(|time| time.parse().unwrap()).collect();
        times[1] - times[0]
    });
    (uptimes[1] - uptimes[0] < seconds * 1.2).then_some(times)
}

/// How often, of 60 looks, the program on the whole machine ran alone, the two on a CPU each ran without
/// it, and anything else was the case.
fn levels_in_turn(session: &mut Session, wide: &str, narrow: [&str; 2]) -> (u32, u32, u32) {
    let [wide, one, other] =
        [wide, narrow[0], narrow[1]].map(|name| format!("/sys/fs/cgroup/coplace/*/{name}/cgroup.freeze"));
    // The first is read again: a switch in between makes a look worthless.
    let samples = session.sh(&format!(
        "wide=$(echo {wide}) one=$(echo {one}) other=$(echo {other}) i=0
         while [ $i -lt 60 ]; do
            read -r w < $wide; read -r x < $one; read -r y < $other; read -r z < $wide
            [ $w = $z ] && echo $w$x$y; i=$((i + 1)); sleep 0.02
         done"
    ));
    let count = |what: &str| samples.lines().filter(|sample| *sample == what).count() as u32;
    let (machine, cpus) = (count("011"), count("100"));
    (machine, cpus, samples.lines().count() as u32 - machine - cpus)
}

/// Over how many cycles of all levels CPU time is measured, and how many of them at once. What the emulation
/// does beside takes more from one CPU at a time than from the other: it evens out over longer times.
const CYCLES: u32 = 200;
const CYCLES_AT_ONCE: u32 = 20;

/// Three programs on two CPUs: one on the whole machine in turn with two on a CPU each. What the plan
/// states is what they get, by the kernel's account.
#[test]
fn levels_alternate_as_planned_with_entitled_cpu_time() {
    // It measures CPU time: while it does, the other guest rests.
    let Some(_others) = two_packages() else { return };
    let mut guest = match Guest::boot("two-cpus", TESTS, &kept()) {
        Ok(guest) => guest,
        Err(why) => return skipped_here(why),
    };
    let names = ["a", "b", "c"];
    // With twice the weight of the others the whole machine's turn is as long as theirs.
    for (weights, machine_to_cpus) in [([1, 1, 1], 0.5), ([2, 1, 1], 1.0)] {
        let mut session = guest.session("--policy LV");
        for (name, weight) in names.into_iter().zip(weights) {
            let without_rest = "env -u GOMP_SPINCOUNT /apps/breathe 0 4";
            session.start(name, &format!("--weight {weight}"), without_rest);
        }
        let levels = ["0", "0-1", "1"];
        session.until_all("two levels", |sights| Session::places(sights) == levels);
        let (wide, narrow, slices) = session.until("they take turns, balanced", |session| {
            let plan = session.json("coplace status --json")?["plan"].as_str()?.to_owned();
            let sights = session.sample();
            let (wide, narrow): (Vec<&str>, Vec<&str>) =
                names.iter().partition(|name| sights[**name].cpus == "0-1");
            let durations =
                plan.split(' ').filter_map(|word| word.trim_start_matches('[').strip_suffix("ms"));
            let slices: Vec<f64> = durations.filter_map(|ms| ms.parse().ok()).collect();
            let two_levels = plan.starts_with("in_turn strict [") && wide.len() == 1 && slices.len() == 2;
            two_levels.then(|| (wide[0], [narrow[0], narrow[1]], [slices[0], slices[1]]))
        });
        println!("weights {weights:?}: {wide} on 0-1 for {} ms, {narrow:?} for {} ms", slices[0], slices[1]);
        assert!((slices[0] / slices[1] / machine_to_cpus - 1.0).abs() < 0.01, "{slices:?}");
        assert!(weights[0] == 1 || wide == "a", "{wide} is on the whole machine");
        session.until("the levels are seen in turn", |session| {
            let (machine, cpus, else_) = levels_in_turn(session, wide, narrow);
            println!("the machine's turn in {machine} looks, the CPUs' in {cpus}, a switch in {else_}");
            (machine >= 5 && cpus >= 5 && else_ * 4 <= machine + cpus).then_some(())
        });
        let seconds = (slices[0] + slices[1]) / 1e3 * f64::from(CYCLES_AT_ONCE);
        let entitled = weights.map(|weight| f64::from(weight) / f64::from(weights.iter().sum::<u32>()));
        let off = |got: [f64; 3]| [0, 1, 2].map(|at| got[at] / got.iter().sum::<f64>() / entitled[at] - 1.0);
        let since = Instant::now();
        let window = |session: &mut Session| {
            let (mut got, mut cycles) = ([0.0; 3], 0);
            while cycles < CYCLES {
                if let Some(more) = cpu_times(session, names, seconds) {
                    (0..3).for_each(|at| got[at] += more[at]);
                    cycles += CYCLES_AT_ONCE;
                }
                assert!(since.elapsed() < PATIENCE, "{cycles} cycles; {}", session.traces());
            }
            got
        };
        let (mut got, mut tries) = (window(&mut session), 1);
        // A host that was busy on one of its CPUs takes from one program only.
        while off(got).iter().any(|off| off.abs() > 0.05) && tries < 3 {
            (got, tries) = (window(&mut session), tries + 1);
        }
        let (seconds, all) = (seconds * f64::from(CYCLES / CYCLES_AT_ONCE), got.iter().sum::<f64>() / 1e6);
        let percent = off(got).map(|off| format!("{:+.1}%", off * 100.0));
        println!(
            "over {seconds} s from what each is entitled to: {percent:?}; {all:.1} s of all; try {tries}"
        );
        assert!(
            off(got).iter().all(|off| off.abs() <= 0.05),
            "{percent:?} in {CYCLES} cycles, {tries} times"
        );
        // The rest is what the emulation does beside.
        assert!(all >= seconds * 2.0 * 0.8, "{got:?} in {seconds} s");
        session.end();
    }
}

#[test]
fn rigid_programs_are_placed_by_width_or_take_turns() {
    let Some(mut guest) = two_packages() else { return };
    let mut session = guest.as_mut().unwrap().session("--policy TA");
    let program = |threads| format!("env OMP_NUM_THREADS={threads} /apps/static/breathe 10 1");
    let rigid = |threads| format!("--rigid --max-threads {threads}");
    session.start("a", &rigid(4), &program(4));
    session.start("b", &rigid(4), &program(4));
    session.until_all("a package each", |sights| Session::places(sights) == ["0-3", "4-7"]);
    session.start("c", &rigid(8), &program(8));
    session.until_all("the wide one has the machine", |sights| sights["c"].cpus == "0-7");
    check_turns(&mut session, "cgroup.freeze", ["a", "c"]);
    session.end();
}

/// Two programs whose threads their runtime binds, while a third comes and goes twice.
fn bound_teams_beside_one_that_comes_and_goes(program: &str) {
    let Some(mut guest) = two_packages() else { return };
    let mut session = guest.as_mut().unwrap().session("--policy TA");
    let bound = format!("env OMP_PROC_BIND=true OMP_PLACES=cores {program} 10 1");
    session.start("a", "", &bound);
    session.start("b", "", &bound);
    for name in ["c", "d"] {
        session.start(name, "", BREATHE);
        let each_on_its_own = |session: &mut Session| {
            let sights = session.sample();
            let teams = ["a", "b"].map(|name| {
                let mut masks = sights.get(name).map_or(Vec::new(), |sight| session.masks(sight));
                masks.sort_unstable();
                masks.dedup();
                // LLVM's runtime has one more thread, bound to nothing.
                masks.iter().filter(|mask| mask.parse::<u32>().is_ok()).count()
            });
            (teams == [8, 8] && sights.contains_key(name)).then_some(())
        };
        session.until("each of eight threads keeps a CPU of its own", each_on_its_own);
        session.sh(&format!("kill -TERM $(cat $OUT/{name}.pid)"));
        session.until("it has left", |session| (!session.sample().contains_key(name)).then_some(()));
    }
    session.end();
}

#[test]
fn bound_teams_of_gnu_threads_survive_coming_and_going() {
    bound_teams_beside_one_that_comes_and_goes("/apps/breathe");
}

#[test]
fn bound_teams_of_llvm_threads_survive_coming_and_going() {
    if breathe_llvm().is_none() {
        return skipped_here("there is no clang with OpenMP (apt-get install clang libomp-dev)");
    }
    bound_teams_beside_one_that_comes_and_goes("/tests/breathe-llvm");
}

/// Pages of its own that a program has on each node, in pages.
fn pages(session: &mut Session, sight: &Sight) -> [u64; 2] {
    let maps = session.sh(&format!("grep anon= /proc/{}/numa_maps", sight.pids[0]));
    let on = |node: &str| {
        let counts = maps.split_whitespace().filter_map(|word| word.strip_prefix(node)?.parse::<u64>().ok());
        counts.sum()
    };
    [on("N0="), on("N1=")]
}

#[test]
fn memory_follows_its_program_to_another_package_unbound() {
    const MIB: u64 = 16;
    let Some(mut guest) = two_packages() else { return };
    let mut session = guest.as_mut().unwrap().session("--policy fixed --set 'plan=a on 0-3'");
    session.start("a", "", &format!("/apps/breathe 20 {MIB}"));
    for (place, here) in [("0-3", 0), ("4-7", 1), ("0-3", 0)] {
        session.set_policy(&format!("fixed --set 'plan=a on {place}'"));
        let sights = session.until_all("it is there", |sights| sights["a"].cpus == place);
        // All of its memory has been touched by then.
        let pages = session.until("its memory is there, and hardly any elsewhere", |session| {
            let pages = pages(session, &sights["a"]);
            (pages[here] * 4096 >= MIB << 20 && pages[1 - here] * 20 < pages[here]).then_some(pages)
        });
        println!("on {place}: {} pages on node 0, {} on node 1", pages[0], pages[1]);
        assert_eq!(session.sample()["a"].mems, "0-1", "bound to no node");
    }
    session.end();
}

/// No program has a group of ours any more, and every thread of these may run everywhere. Which of
/// these is not so, if any.
const FREE: &str = "[ -d /sys/fs/cgroup/coplace ] && echo a group is left
    for pid in $PIDS; do
        read -r group < /proc/$pid/cgroup; [ \"$group\" = 0::/ ] || echo $pid is in $group
        grep -h Cpus_allowed_list /proc/$pid/task/*/status | grep -v '\\s0-7$'
    done";

#[test]
fn programs_of_killed_schedulers_and_runs_are_restored() {
    let Some(mut guest) = two_packages() else { return };
    let options = "--policy CO --set allowed_widths=[4] --slice 200ms";
    let mut session = guest.as_mut().unwrap().session(options);
    let names = ["a", "b", "c", "d"];
    names.iter().for_each(|name| session.start(name, "", BREATHE));
    let sights = session.until_all("packages, in turn", |sights| {
        Session::places(sights) == ["0-3", "0-3", "4-7", "4-7"] && sights.values().any(|sight| sight.frozen)
    });
    let pids: Vec<String> = sights.values().flat_map(|sight| &sight.pids).map(u32::to_string).collect();
    // With its `run` a program loses who would look after it next; the guard alone is left.
    let longest = session.sh(&format!(
        "PIDS='{}'; kill -9 $(cat $OUT/daemon.pid $OUT/[abcd].pid)
         read -r began rest < /proc/uptime
         left() {{ {FREE}; }}
         while [ -n \"$(left)\" ]; do
            read -r now rest < /proc/uptime; [ ${{now%.*}} -gt $((${{began%.*}} + 20)) ] && break; sleep 0.1
         done
         left; read -r now rest < /proc/uptime; echo $began $now; kill -TERM $PIDS",
        pids.join(" ")
    ));
    let last = longest.lines().last().unwrap_or_default();
    let times: Vec<f64> = last.split(' ').filter_map(|time| time.parse().ok()).collect();
    if longest.lines().count() != 1 {
        let known = "cat $COPLACE_RUNTIME_DIR/apps/*";
        panic!("not free after 20 s: {longest}; {}; {}", session.sh(known), session.traces());
    }
    println!("free after {:.1} s of an emulated machine's time", times[1] - times[0]);
    // A second is promised; emulated CPUs that share two real ones may take some.
    assert!(times[1] - times[0] < 20.0, "{longest}");
    session.end();
}

#[test]
fn a_stopped_scheduler_readopts_its_freed_programs() {
    let Some(mut guest) = two_packages() else { return };
    let mut session = guest.as_mut().unwrap().session("--policy TA");
    session.start("a", "", BREATHE);
    session.start("b", "", BREATHE);
    session.until_all("a package each", |sights| Session::places(sights) == ["0-3", "4-7"]);
    session.sh("kill -STOP $(cat $OUT/daemon.pid)");
    session.until("the guard sets them free", |session| session.sample().is_empty().then_some(()));
    session.sh("kill -CONT $(cat $OUT/daemon.pid)");
    session.until_all("a package each again", |sights| Session::places(sights) == ["0-3", "4-7"]);
    session.end();
}

#[test]
fn real_programs_end_with_the_right_result() {
    let Some(mut guest) = two_packages() else { return };
    let mut session = guest.as_mut().unwrap().session("--policy TA");
    for (name, command) in [
        ("cg", "/apps/cg --size T"),
        ("regions", "/apps/regions --size T"),
        ("triad", "/apps/static/triad --size T"),
        ("rigid", "env OMP_NUM_THREADS=4 /apps/static/rigid --size T"),
    ] {
        session.start(name, "", command);
    }
    session.until("all have ended", |session| {
        let ended = session.sh("grep -l VERIFIED $OUT/cg $OUT/regions $OUT/triad $OUT/rigid; true");
        (ended.lines().count() == 4).then_some(())
    });
    session.end();
}

#[test]
fn groups_of_this_kernel_behave_as_the_library_expects() {
    let Some(mut guest) = two_packages() else { return };
    let (status, output) = guest.as_mut().unwrap().try_sh("/tests/groups_live --test-threads 1 --nocapture");
    println!("{output}");
    assert_eq!(status, 0, "{output}");
    let skipped = |line: &&str| line.contains("SKIPPED") && !line.contains("cgroup v1");
    assert_eq!(output.lines().find(skipped), None, "{output}");
}

/// Runs one program in a guest beside neighbours that come and go; what was wrong with that, if anything.
fn beside_neighbours(session: &mut Session, program: &Program, bound: bool) -> Option<String> {
    let (file, scale) = (program.file(), "0.05");
    let binding = if bound { "OMP_PROC_BIND=true OMP_PLACES=cores" } else { "" };
    let printed = session.sh(&format!(
        "export GOMP_SPINCOUNT=200 KMP_BLOCKTIME=0
         rm -f $OUT/done $OUT/seen; {binding} /tests/{file} {scale} > $OUT/alone || exit 1
         ({binding} coplace run -q --name subject -- /tests/{file} {scale} > $OUT/subject 2> $OUT/subject.err
            echo $? > $OUT/done) &
         n=0
         while [ ! -e $OUT/done ] && [ $n -lt 200 ]; do
            if [ $n -lt 20 ]; then
                [ $((n % 2)) = 0 ] && kind=resizable || kind=rigid
                coplace run -q --name neighbour-$n -- /tests/neighbour-$kind 50
            else sleep 0.5; fi
            n=$((n + 1))
            coplace status --json > $OUT/now && grep -q '\"id\": \"subject\"' $OUT/now && cp $OUT/now $OUT/seen
         done
         [ -e $OUT/done ] || {{ echo 'does not end' > $OUT/done; killall {file}; }}
         cat $OUT/done; cat $OUT/subject $OUT/subject.err | head -n 3; cmp $OUT/alone $OUT/subject; true"
    ));
    let title = format!("{file}{}", if bound { ", bound" } else { "" });
    let alone = session.sh("cat $OUT/alone");
    if printed != format!("0\n{alone}") {
        return Some(format!("{title}: {printed}alone {alone}"));
    }
    let status = session.json("cat $OUT/seen")?;
    let apps = status["apps"].as_array()?;
    let (found, why) = teams::verdict(apps.iter().find(|app| app["id"] == "subject")?)?;
    let as_marked = found == program.mark || bound && found == Mark::Rigid;
    (!as_marked).then(|| format!("{title}: found {found:?} {why:?}, not {:?}", program.mark))
}

#[test]
fn teams_of_many_kinds_compute_on_eight_cpus_as_alone() {
    let Some(mut guest) = two_packages() else { return };
    let mut session = guest.as_mut().unwrap().session("--policy TA");
    let mut wrong = Vec::new();
    for (at, program) in team_programs().into_iter().enumerate() {
        // Each once, as on this machine, or both ways.
        for bound in [false, true].into_iter().filter(|bound| all_teams() || *bound == (at % 2 == 1)) {
            wrong.extend(beside_neighbours(&mut session, &program, bound));
        }
    }
    session.end();
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}
