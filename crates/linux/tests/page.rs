//! The shared page: the header's layout, and the node's half of the protocol.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use coplace_linux::page::{self, PAGE_BYTES, Page, PageDir, RigidReason, state};
use coplace_linux::{Process, Root};

#[test]
fn the_layout_is_that_of_the_c_header() {
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include");
    let dir = tempfile::tempdir().unwrap();
    let mut source = String::from(
        "#include <coplace/page.h>\n#include <inttypes.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    let layout = page::layout();
    for (name, _) in &layout {
        source += &format!("printf(\"%zu\\n\", offsetof(struct coplace_page, {name}));\n");
    }
    source += "printf(\"%zu %zu %zu\\n\", sizeof(struct coplace_page), sizeof(struct coplace_lane), sizeof(struct coplace_size));\n";
    source += "printf(\"%\" PRIu64 \" %u %u\\n\", (uint64_t)COPLACE_PAGE_MAGIC, COPLACE_PAGE_VERSION, COPLACE_SIZES);\n";
    source += "printf(\"%u %u %u %u %u %u %u %u\\n\", COPLACE_STATE_LOADED, COPLACE_STATE_RUNTIME_INITIALISED, COPLACE_STATE_BINDS_THREADS, COPLACE_STATE_SPINS_LONG, COPLACE_STATE_RUNTIME_DYNAMIC, COPLACE_STATE_EXITED, COPLACE_STATE_SET_OWN_MASK, COPLACE_STATE_FOLLOWS_PLACE);\n";
    source += "printf(\"%u %u %u %u %u %u %u %u\\n\", COPLACE_RIGID_SET_DYNAMIC_0, COPLACE_RIGID_EXPLICIT_NUM_THREADS, COPLACE_RIGID_DECLARED, COPLACE_RIGID_RUNTIME_UNKNOWN, COPLACE_RIGID_SPINS_IN_DOCK, COPLACE_RIGID_GENERATED_CODE, COPLACE_RIGID_FLOATING_POINT, COPLACE_RIGID_BINDS_THREADS);\nreturn 0; }\n";
    let (c, program) = (dir.path().join("layout.c"), dir.path().join("layout"));
    fs::write(&c, source).unwrap();
    let compiled =
        Command::new("cc").args(["-std=gnu11", "-I", include, "-o"]).arg(&program).arg(&c).output();
    let Ok(compiled) = compiled else {
        return coplace_skipped::skipped_here("cc cannot be executed");
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let mut lines = output.lines();
    for (name, offset) in &layout {
        assert_eq!(lines.next().unwrap(), offset.to_string(), "offset of {name}");
    }
    assert_eq!(lines.next().unwrap(), "4096 1856 16");
    assert_eq!(lines.next().unwrap(), format!("{} {} {}", page::MAGIC, page::VERSION, page::SIZES));
    let states = [
        state::LOADED,
        state::RUNTIME_INITIALISED,
        state::BINDS_THREADS,
        state::SPINS_LONG,
        state::RUNTIME_DYNAMIC,
        state::EXITED,
        state::SET_OWN_MASK,
        state::FOLLOWS_PLACE,
    ];
    assert_eq!(lines.next().unwrap(), states.map(|bit| bit.to_string()).join(" "));
    assert_eq!(lines.next().unwrap(), "1 2 4 8 16 32 64 65536");
}

struct Pages {
    _dir: tempfile::TempDir,
    pages: PageDir,
}

impl Pages {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pages = PageDir::create(dir.path().join("pages"), 3, true).unwrap();
        Pages { _dir: dir, pages }
    }

    /// Writes fields by the header's names into a process's page, as the library would.
    fn write(&self, pid: u32, fields: &[(&str, &[u8])]) {
        let path = self.pages.path().join(pid.to_string());
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path).unwrap();
        file.set_len(PAGE_BYTES as u64).unwrap();
        for (name, value) in fields {
            let offset = page::layout().into_iter().find(|(field, _)| field == name).unwrap().1;
            file.write_all_at(value, offset as u64).unwrap();
        }
    }

    fn ready(&self, process: Process) -> Page {
        self.write(
            process.pid,
            &[
                ("version", &page::VERSION.to_ne_bytes()),
                ("pid", &process.pid.to_ne_bytes()),
                ("start_time", &process.start_time_ticks.to_ne_bytes()),
                ("magic", &page::MAGIC.to_ne_bytes()),
            ],
        );
        self.pages.page(process.pid).unwrap().unwrap()
    }
}

const SOMEBODY: Process = Process { pid: 4_000_123, start_time_ticks: 5 };

#[test]
fn the_default_page_carries_first_target_and_declaration() {
    let pages = Pages::new();
    let default = Page::open(&pages.pages.path().join("default")).unwrap().unwrap();
    assert_eq!((default.target(), default.rigid()), (3, vec![RigidReason::Declared]));
    pages.pages.set_default(0, false).unwrap();
    let default = Page::open(&pages.pages.path().join("default")).unwrap().unwrap();
    assert_eq!((default.target(), default.rigid()), (0, vec![]));
    assert!(pages.pages.pages().unwrap().is_empty(), "the default is nobody's page");
}

#[test]
fn a_page_that_is_being_made_is_not_read_yet() {
    let pages = Pages::new();
    fs::write(pages.pages.path().join("7"), b"short").unwrap();
    assert!(pages.pages.page(7).unwrap().is_none());
    pages.write(7, &[]);
    assert!(pages.pages.page(7).unwrap().is_none());
    assert!(pages.pages.page(8).unwrap().is_none());
    pages.ready(Process { pid: 7, start_time_ticks: 1 });
    assert_eq!(pages.pages.pages().unwrap().len(), 1);
}

#[test]
fn a_page_of_another_version_is_a_named_absence() {
    let pages = Pages::new();
    pages.write(7, &[("version", &9u32.to_ne_bytes()), ("magic", &page::MAGIC.to_ne_bytes())]);
    let error = pages.pages.page(7).unwrap_err().to_string();
    assert!(error.contains("version 9"), "{error}");
}

#[test]
fn a_wish_reaches_every_mapping_with_its_number() {
    let pages = Pages::new();
    let page = pages.ready(SOMEBODY);
    let same = Page::open(page.path()).unwrap().unwrap();
    let seq = page.set_target(2);
    assert_eq!((same.target(), same.target_seq()), (2, seq));
    assert_eq!(same.set_target(1), seq + 1);
    assert_eq!(page.target(), 1);
    let bytes = fs::read(page.path()).unwrap();
    assert_eq!(bytes[128..132], 1u32.to_ne_bytes(), "target comes first");
}

#[test]
fn the_figures_are_the_sum_of_both_lanes_and_the_nested_threads() {
    let pages = Pages::new();
    let page = pages.ready(SOMEBODY);
    assert!(!page.is_in_region());
    let now = |regions: u64, threads: u64| (regions << 32 | threads).to_ne_bytes();
    pages.write(
        SOMEBODY.pid,
        &[("lane", &now(1, 4)), ("lane[1].now", &now(2, 6)), ("nested", &3u32.to_ne_bytes())],
    );
    assert!(page.is_in_region());
    assert_eq!(page.team(), 13);
    pages
        .write(SOMEBODY.pid, &[("lane[1].regions", &40u64.to_ne_bytes()), ("max_team", &8u32.to_ne_bytes())]);
    assert_eq!((page.regions(), page.max_team()), (40, 8));
    let mut two = [0u8; 32];
    two[16..24].copy_from_slice(&5u64.to_ne_bytes());
    two[24..].copy_from_slice(&900u64.to_ne_bytes());
    pages.write(SOMEBODY.pid, &[("lane[1].size", &two)]);
    let sizes = page.sizes();
    assert_eq!(sizes.len(), 1);
    assert_eq!((sizes[0].threads, sizes[0].regions, sizes[0].ns), (2, 5, 900));
}

#[test]
fn only_a_resizable_team_that_fits_loses_cpus() {
    let pages = Pages::new();
    let page = pages.ready(SOMEBODY);
    assert!(!page.fits_target(), "no target yet");
    page.set_target(2);
    pages.write(SOMEBODY.pid, &[("lane", &(1u64 << 32 | 4).to_ne_bytes())]);
    assert!(!page.fits_target(), "a team of four runs");
    pages.write(SOMEBODY.pid, &[("lane", &2u64.to_ne_bytes())]);
    assert!(page.fits_target());
    pages.write(SOMEBODY.pid, &[("rigid", &(1u32 << 9).to_ne_bytes())]);
    assert_eq!(page.rigid(), [RigidReason::Unknown]);
    assert!(!page.fits_target());
}

#[test]
fn pages_of_ended_processes_are_removed_and_others_kept() {
    let pages = Pages::new();
    let root = Root::live();
    let own = Process::own(&root).unwrap();
    pages.ready(own);
    pages.ready(SOMEBODY);
    assert_eq!(pages.pages.remove_stale(&[], &root).unwrap(), [SOMEBODY.pid.into()]);
    assert_eq!(pages.pages.pages().unwrap().len(), 1);
    // The same pid, another process.
    pages.ready(Process { start_time_ticks: own.start_time_ticks + 1, ..own });
    assert_eq!(pages.pages.remove_stale(&[], &root).unwrap(), [own.pid.into()]);
    let path = pages.pages.path().to_owned();
    pages.pages.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_directory_that_others_can_write_to_or_a_link_is_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(PageDir::create(&open, 0, false).is_err());
    let link = dir.path().join("link");
    symlink(dir.path(), &link).unwrap();
    assert!(PageDir::create(&link, 0, false).is_err());
}

/// A user whom nobody is.
const STRANGER: u32 = 54_321;

/// The directory as one of that user's, with a page of SOMEBODY's in it; `None` without the right to give
/// files away.
fn strangers() -> Option<(Pages, Page, PageDir)> {
    let pages = Pages::new();
    let mapped = pages.ready(SOMEBODY);
    for name in [String::new(), "default".into(), SOMEBODY.pid.to_string()] {
        if std::os::unix::fs::chown(pages.pages.path().join(name), Some(STRANGER), None).is_err() {
            coplace_skipped::skipped_here("only root has pages of other users");
            return None;
        }
    }
    let theirs = PageDir::open_of(pages.pages.path(), STRANGER);
    Some((pages, mapped, theirs))
}

#[test]
fn another_users_page_is_read_and_written_by_calls() {
    let Some((pages, mapped, theirs)) = strangers() else { return };
    let page = theirs.page(SOMEBODY.pid).unwrap().unwrap();
    assert_eq!((page.process(), page.max_team()), (SOMEBODY, 0));
    pages.write(SOMEBODY.pid, &[("max_team", &6u32.to_ne_bytes())]);
    assert_eq!(page.max_team(), 6);
    let seq = page.set_target(2);
    assert_eq!((mapped.target(), mapped.target_seq()), (2, seq));
    assert_eq!(page.target_seq(), seq);

    theirs.set_default(5, false).unwrap();
    let default = Page::open(&pages.pages.path().join("default")).unwrap().unwrap();
    // What its own `run` declared stays.
    assert_eq!((default.target(), default.rigid()), (5, vec![RigidReason::Declared]));
}

#[test]
fn a_truncated_or_replaced_page_harms_nobody() {
    let Some((pages, _mapped, theirs)) = strangers() else { return };
    let page = theirs.page(SOMEBODY.pid).unwrap().unwrap();
    let path = page.path().to_owned();
    fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    assert!(!page.is_ready() && page.running() == 0 && page.sizes().is_empty() && !page.fits_target());
    assert!(theirs.page(SOMEBODY.pid).unwrap().is_none());

    // Files of others, links to them and things that are no files are left alone.
    let precious = pages.pages.path().join("precious");
    fs::write(&precious, vec![7; PAGE_BYTES]).unwrap();
    for what in ["file", "link", "pipe", "directory"] {
        fs::remove_file(&path).unwrap();
        match what {
            "file" => fs::hard_link(&precious, &path).unwrap(),
            "link" => std::os::unix::fs::symlink(&precious, &path).unwrap(),
            "pipe" => rustix::fs::mknodat(
                rustix::fs::CWD,
                &path,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RWXU,
                0,
            )
            .unwrap(),
            _ => fs::create_dir(&path).unwrap(),
        }
        assert!(theirs.page(SOMEBODY.pid).is_err(), "{what}");
        assert!(theirs.bubbles(SOMEBODY.pid).is_none());
        theirs.remove_page(SOMEBODY.pid).unwrap();
        assert!(path.symlink_metadata().is_ok(), "a {what} stays");
    }
    assert_eq!(fs::read(&precious).unwrap(), vec![7; PAGE_BYTES]);
}
