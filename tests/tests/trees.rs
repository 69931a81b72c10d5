//! Programs that are more than one process: scripts, parents with workers, MPI jobs under their
//! launcher.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use coplace_tests::{Home, app, openmp_helper, processes, skipped, skipped_part};

fn team(home: &Home, name: &str) -> Option<u64> {
    home.app(name)?["team"].as_u64()
}

/// A number in the page of a process, by its offset (include/coplace/page.h).
fn in_page(home: &Home, pid: u32, offset: usize) -> Option<u64> {
    let pages = fs::read_dir(home.path().join("h/pages")).ok()?.flatten();
    let page = pages.filter_map(|entry| fs::read(entry.path().join(pid.to_string())).ok()).next()?;
    let bytes = page.get(offset..offset + 4)?;
    Some(u64::from(u32::from_ne_bytes(bytes.try_into().expect("four bytes"))))
}

/// What the runtime of a process has told it to be the greatest team.
fn max_team(home: &Home, pid: u32) -> Option<u64> {
    in_page(home, pid, 40)
}

/// The team that a process is asked to have; 0: as many threads as it likes.
fn asked(home: &Home, pid: u32) -> Option<u64> {
    in_page(home, pid, 128)
}

/// Threads of the latest team of a process.
fn latest_team(home: &Home, pid: u32) -> Option<u64> {
    // The low half of what lane 0 says of now: the machines that we run on store it first.
    in_page(home, pid, 384)
}

#[test]
fn a_late_process_of_a_confined_program_grows_when_alone() {
    if processes::cpu_count() < 2 {
        return skipped("growing beyond one CPU", "there is only one");
    }
    for placement in ["auto", "affinity"] {
        let home = Home::new();
        fs::write(home.path().join("config.toml"), format!("policy = 'EQ'\nplacement = '{placement}'\n"))
            .unwrap();
        let _daemon = home.daemon(&[]);
        let (regions, cg) = (app("regions"), app("cg"));
        let mut other = home.start(
            "other",
            home.coplace().args(["run", "-q", "--name", "other", "--", &cg, "--size", "S", "--scale", "12"]),
        );
        // The second process of the script begins when the first one has long been narrow.
        let script = format!("{regions} --size S --scale 0.6 && exec {regions} --size S --scale 8");
        let mut run = home.start(
            "script",
            home.coplace().args(["run", "-q", "--name", "script", "--", "sh", "-c", &script]),
        );
        let second = || {
            home.running("regions")
                .first()
                .copied()
                .filter(|pid| processes::command(*pid).contains(&"8".to_owned()))
        };
        home.until("the second process runs", || second().is_some());
        let all = processes::cpu_count() as u64;
        let own = processes::own_mask();
        home.until("it runs narrow", || {
            second().is_some_and(|pid| processes::masks(pid).iter().all(|mask| *mask != own))
                && team(&home, "script").is_some_and(|team| team < all)
        });
        // It began inside the place, and knows of the whole machine all the same.
        let pid = second().expect("it runs for long");
        home.until("its runtime has told", || max_team(&home, pid) == Some(all));
        other.signal(libc::SIGTERM);
        other.ended_within(Duration::from_secs(60));
        home.until("its team is the whole machine", || {
            // On a machine on which others work there may be no whole machine to have.
            let others_work = || home.status().is_some_and(|status| status["usable"] != status["allowed"]);
            team(&home, "script") == Some(all) || others_work()
        });
        assert!(run.ended_within(Duration::from_secs(60)).success() && run.verified(), "{}", run.stdout());
    }
}

#[test]
fn a_place_is_divided_among_the_teams_of_a_programs_processes() {
    let cpus = processes::cpu_count() as u64;
    if cpus < 2 {
        return skipped("dividing a place", "there is only one CPU");
    }
    let home = Home::new();
    let _daemon = home.daemon(&["--policy", "TA"]);
    let regions = app("regions");
    let script =
        format!("{regions} --size S --scale 2 & {regions} --size S --scale 2; wait $! && echo VERIFIED");
    let mut run =
        home.start("pair", home.coplace().args(["run", "-q", "--name", "pair", "--", "sh", "-c", &script]));
    home.until("both run", || home.running("regions").len() == 2);
    home.until("together they have one thread a CPU", || team(&home, "pair") == Some(cpus.max(2)));
    // Two spinning teams of the whole machine each would take minutes.
    assert!(run.ended_within(Duration::from_secs(90)).success() && run.verified(), "{}", run.stdout());
}

/// How many CPUs a list of them names.
fn width(list: &str) -> u64 {
    let number = |text: &str| text.parse::<u64>().expect("a list of CPUs");
    let part = |part: &str| part.split_once('-').map_or(1, |(from, to)| number(to) - number(from) + 1);
    list.split(',').map(part).sum()
}

/// mpirun of Open MPI and of MPICH, each rank with OpenMP teams.
#[test]
fn a_place_is_divided_among_the_teams_of_mpi_ranks() {
    const NAME: &str = "a_place_is_divided_among_the_teams_of_mpi_ranks";
    let cpus = processes::cpu_count() as u64;
    if cpus < 2 {
        return skipped(NAME, "there is only one CPU");
    }
    let launchers = launchers();
    for wanted in ["Open MPI", "Hydra"] {
        if !launchers.iter().any(|(name, _)| *name == wanted) {
            skipped_part(&format!("{NAME}, {wanted}"), "it is not installed");
        }
    }
    for (name, arguments) in launchers {
        let home = Home::new();
        let _daemon = home.daemon(&["--policy", "TA"]);
        let mut command = home.coplace();
        command.args(["run", "-q", "--name", "job", "--"]).args(&arguments).args(["-np", "2"]);
        let mut run = home.start("job", command.arg(app("regions")).args(["--size", "S", "--scale", "2"]));
        home.until(&format!("the ranks of {name} run"), || home.running("regions").len() == 2);
        // Each page begins without a wish or with that of the whole program, and until its code has been
        // looked at, a rank has all the threads it wants.
        home.until("each has its part of the CPUs as its team", || {
            let teams = |pid: &u32| Some((asked(&home, *pid)?, latest_team(&home, *pid)?));
            let teams: Vec<_> = home.running("regions").iter().filter_map(teams).collect();
            teams.len() == 2
                && teams.iter().all(|(asked, latest)| *asked > 0 && asked == latest)
                && teams.iter().map(|(asked, _)| asked).sum::<u64>() == cpus
        });
        home.until("together they have one thread a CPU", || team(&home, "job") == Some(cpus));
        let ranks = home.running("regions");
        assert!(
            ranks.iter().all(|pid| max_team(&home, *pid).is_some_and(|max_team| max_team >= 2)),
            "{name}: told of less"
        );
        // Each rank has a thread at least. A place that has just become narrower binds at the next regions.
        let (mut samples, mut over) = (0, 0);
        while run.has_ended().is_none() && home.running("regions").len() == 2 {
            let Some(job) = home.app("job") else { break };
            if let (Some(team), Some(place)) = (job["team"].as_u64(), job["place"].as_str()) {
                assert!(team <= cpus.max(2), "{name}: {job}");
                over = if team > width(place).max(2) { over + 1 } else { 0 };
                assert!(over < 20, "{name}: {job}");
                samples += 1;
            }
        }
        assert!(samples > 0, "{name}: the ranks were gone before anybody looked");
        assert!(run.ended_within(Duration::from_secs(90)).success(), "{name}: {}", run.stderr());
        let verified = run.stdout().lines().filter(|line| *line == "VERIFIED").count();
        assert_eq!(verified, 2, "{name}: {}", run.stdout());
    }
}

/// mpirun of Open MPI and of MPICH, as far as they are installed.
fn launchers() -> Vec<(&'static str, Vec<&'static str>)> {
    let open_mpi = vec!["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"];
    let all = [("Open MPI", open_mpi), ("Hydra", vec!["mpiexec.hydra"])];
    let there = |command: &str| Path::new("/usr/bin").join(command).exists();
    all.into_iter().filter(|(_, arguments)| there(arguments[0])).collect()
}

/// The same where there is something to bind to; none where the calling test counts as skipped.
fn launchers_that_can_bind() -> Vec<(&'static str, Vec<&'static str>)> {
    let launchers = launchers();
    if launchers.is_empty() {
        skipped("MPI launchers", "neither Open MPI nor MPICH is installed");
    } else if processes::cpu_count() < 2 {
        skipped("binding", "there is only one CPU");
        return Vec::new();
    }
    launchers
}

#[test]
fn ranks_are_bound_by_their_launcher_only_on_request() {
    for (name, arguments) in launchers_that_can_bind() {
        for (option, bound) in [(None, false), (Some("--bind-to=core"), true), (Some("--rebind"), false)] {
            let home = Home::new();
            let _daemon = home.daemon(&[]);
            let start = |seconds: &str| {
                let mut command = home.coplace();
                command.args(["run", "-q", "--name", "job"]);
                if option == Some("--rebind") {
                    command.arg("--rebind");
                }
                command.arg("--").args(&arguments).args(["-np", "2"]);
                if option.is_some() {
                    command.args(["-bind-to", "core"]);
                }
                home.start("job", command.arg(app("burn")).args(["--seconds", seconds]))
            };
            let mut whole = start("0.2");
            assert!(whole.ended_within(Duration::from_secs(60)).success(), "{}", whole.stderr());
            let mut run = start("30");
            home.until(&format!("the ranks of {name} run"), || home.running("burn").len() == 2);
            home.until(&format!("{name} {option:?}: {bound}"), || {
                // Their place is narrower than the machine for as long as others work on it.
                let place = home.app("job").and_then(|job| job["place"].as_str().map(str::to_string));
                let ranks = home.running("burn");
                let mut masks = ranks.iter().flat_map(|pid| processes::masks(*pid));
                ranks.len() == 2 && place.is_some() && masks.any(|mask| Some(mask) != place) == bound
            });
            run.signal(libc::SIGTERM);
            run.ended_within(Duration::from_secs(60));
            home.until("the ranks end with it", || home.running("burn").is_empty());
        }
    }
}

#[test]
fn bound_ranks_stand_beside_others_where_they_would_alone() {
    for (name, arguments) in launchers_that_can_bind() {
        let home = Home::new();
        let _daemon = home.daemon(&["--unmanaged", "ignore"]);
        let mut other = home.coplace();
        other.args(["run", "-q", "--name", "other", "--", &app("regions"), "--size", "X"]);
        let mut other = home.start("other", &mut other);
        home.until("the other has the machine", || {
            team(&home, "other") == Some(processes::cpu_count() as u64)
        });
        let mut command = home.coplace();
        command
            .args(["run", "-q", "--name", "job", "--"])
            .args(&arguments)
            .args(["-np", "2", "-bind-to", "core"]);
        let mut run = home.start("job", command.arg(app("burn")).args(["--seconds", "600"]));
        home.until(&format!("each rank of {name} has a CPU of its own"), || {
            let masks = home.running("burn").into_iter().flat_map(processes::masks);
            let masks: BTreeSet<String> = masks.filter(|mask| mask.parse::<u32>().is_ok()).collect();
            masks.len() == 2
        });
        for child in [&mut run, &mut other] {
            child.signal(libc::SIGTERM);
            child.ended_within(Duration::from_secs(60));
        }
        home.until("the ranks end with it", || home.running("burn").is_empty());
    }
}

#[test]
fn ranks_take_turns_and_their_launcher_is_never_stopped() {
    let launchers = launchers();
    if launchers.is_empty() {
        return skipped("MPI launchers", "neither Open MPI nor MPICH is installed");
    }
    for turns in ["auto", "stop"] {
        for (name, arguments) in &launchers {
            let home = Home::new();
            let config = format!(
                "policy = 'CO'\nturns = '{turns}'\n[settings]\nallowed_widths = [{}]\n",
                processes::cpu_count()
            );
            fs::write(home.path().join("config.toml"), config).unwrap();
            let _daemon = home.daemon(&[]);
            let mut runs = Vec::new();
            for job in ["job1", "job2"] {
                let mut command = home.coplace();
                command.args(["run", "-q", "--name", job, "--"]).args(arguments).args(["-np", "2"]);
                runs.push(home.start(job, command.arg(app("burn")).args(["--seconds", "600"])));
            }
            let launcher = arguments[0].trim_end_matches(".openmpi");
            let is_launcher = |pid: &u32| {
                processes::program(*pid).is_some_and(|program| {
                    matches!(program.as_str(), "orterun" | "mpirun" | "mpiexec.hydra" | "hydra_pmi_proxy")
                })
            };
            home.until("both jobs run", || home.running("burn").len() == 4);
            let mut stood = 0;
            home.until("the jobs take turns", || {
                for pid in home.processes().iter().filter(|pid| is_launcher(pid)) {
                    let still = processes::state(*pid) == Some('T') || processes::is_frozen(*pid);
                    // Found within two looks; from then on it is left alone.
                    stood = if still { stood + 1 } else { 0 };
                    assert!(
                        stood < 20,
                        "{name} with turns {turns}: launcher {launcher} ({pid}) stands still"
                    );
                }
                let turns = |job: &str| home.app(job).and_then(|app| app["account"]["turns"].as_u64());
                turns("job1") > Some(3) && turns("job2") > Some(3)
            });
            home.running("burn").into_iter().for_each(|pid| processes::signal(pid, libc::SIGTERM));
            for run in &mut runs {
                assert!(run.ended_within(Duration::from_secs(60)).success(), "{}", run.stderr());
                let verified = run.stdout().lines().filter(|line| *line == "VERIFIED").count();
                assert_eq!(verified, 2, "{}", run.stdout());
            }
        }
    }
}

#[test]
fn ranks_with_unused_openmp_are_not_squeezed_onto_one_cpu() {
    let cpus = processes::cpu_count();
    if cpus < 2 {
        return skipped("ranks side by side", "there is only one CPU");
    }
    let home = Home::new();
    let ranks = openmp_helper("ranks", &home);
    let text = format!(
        "[[program]]\nname = 'ranks'\ncommand = ['{ranks}', '5']\n\n\
         [[program]]\nname = 'short'\ncommand = ['{}', '--size', 'S', '--scale', '2']\n",
        app("regions")
    );
    for (turns, is_known) in [("auto", false), ("stop", true)] {
        let mix = home.mix(&text, &["--policy", "TA", "--turns", turns]);
        mix.is_verified();
        // Two CPUs are what it needs; on this machine or a larger one it never ran long on fewer.
        let widths = mix.widths("ranks");
        let narrow_s = widths.get(&1).copied().unwrap_or(0.0);
        assert!(narrow_s < 2.0, "{widths:?}; {:?}", mix.plans());
        assert!(!is_known || narrow_s == 0.0, "it is known from before: {widths:?}; {:?}", mix.plans());
        // What bound itself while it was confined is free when it is not.
        let printed = mix.printed("ranks");
        assert!(printed.contains(&format!("cpus {cpus} {cpus}")), "{printed}; {:?}", mix.plans());
    }
}
