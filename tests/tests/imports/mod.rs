//! Which module of a crate imports from which, read from its source: `use` of and paths through `crate`, `super`,
//! `self` and a module's own children. Tests are left out. A name that a module hands on from another one
//! (`pub use`) counts as that one's.

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use read::Source;

/// A module's names from the crate's root, which is empty.
type Module = Vec<String>;

/// One module uses another.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    by: Module,
    from: Module,
}

/// A crate's order: layers of rooms, lowest first. A room is a module with all that is in it and has no room
/// of its own; `lib` is what the crate's root defines itself, which stands above all others unless it is named.
pub type Rooms = [&'static [&'static str]];

/// What is wrong in the crate whose sources are in this directory.
pub fn violations(directory: &Path, rooms: &Rooms) -> Vec<String> {
    let files = coplace_tests::rust_files(directory);
    let texts = files.iter().map(|file| {
        let module = module_of(file.strip_prefix(directory).expect("it was found there"));
        (module, fs::read_to_string(file).expect("it is readable"))
    });
    violations_in(texts, rooms)
}

/// The module that a file holds, by its path below `src`.
fn module_of(file: &Path) -> Module {
    let mut names: Module =
        file.with_extension("").iter().map(|name| name.to_string_lossy().into()).collect();
    if matches!(names.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        names.pop();
    }
    names
}

pub fn violations_in(texts: impl Iterator<Item = (Module, String)>, rooms: &Rooms) -> Vec<String> {
    let mut sources: Vec<Source> = texts.map(|(module, text)| Source::read(module, &text)).collect();
    let tests: BTreeSet<Module> = sources.iter().flat_map(|source| source.tests.clone()).collect();
    sources.retain(|source| !tests.iter().any(|test| source.module.starts_with(test)));
    let known: BTreeSet<Module> = sources.iter().flat_map(|source| source.modules.clone()).collect();

    let mut wrong: BTreeSet<String> = BTreeSet::new();
    for room in rooms.iter().flat_map(|layer| layer.iter()).filter(|room| **room != "lib") {
        if !known.contains(&room.split("::").map(str::to_owned).collect::<Module>()) {
            wrong.insert(format!("there is no module {room}"));
        }
    }
    for module in known.iter().filter(|module| !module.is_empty() && place(module, rooms).is_none()) {
        wrong.insert(format!("{} has no place in the table of rooms", name(module)));
    }
    for Import { by, from } in imports(&sources, &known) {
        let (Some((at, room)), Some((below, other))) = (place(&by, rooms), place(&from, rooms)) else {
            continue;
        };
        if room != other && below >= at {
            wrong.insert(format!(
                "{} may not use {}: {other} does not stand below {room}",
                name(&by),
                name(&from)
            ));
        }
    }
    wrong.into_iter().collect()
}

fn name(module: &Module) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("::") }
}

/// The layer of a module, and its room: the one of most names that it is in.
fn place<'a>(module: &Module, rooms: &'a Rooms) -> Option<(usize, &'a str)> {
    let has = |room: &str| match room {
        "lib" => module.is_empty(),
        room => room.split("::").count() <= module.len() && room.split("::").zip(module).all(|(a, b)| a == b),
    };
    let all =
        rooms.iter().enumerate().flat_map(|(layer, rooms)| rooms.iter().map(move |room| (layer, *room)));
    let found = all.filter(|(_, room)| has(room)).max_by_key(|(_, room)| room.split("::").count());
    found.or(module.is_empty().then_some((rooms.len(), "lib")))
}

fn imports(sources: &[Source], known: &BTreeSet<Module>) -> BTreeSet<Import> {
    let mut handed_on: BTreeMap<Module, Module> = BTreeMap::new();
    let all = || sources.iter().flat_map(|source| &source.uses);
    for used in all().filter(|used| used.public) {
        if let (Some(path), Some(name)) = (used.absolute(known), &used.name) {
            let shown: Module = used.by.iter().chain([name]).cloned().collect();
            if shown != path {
                handed_on.insert(shown, path);
            }
        }
    }
    let mut imports = BTreeSet::new();
    for used in all() {
        let Some(path) = used.absolute(known) else { continue };
        // Whoever uses what a module hands on of its own children is asked instead; the root shows what it likes.
        if used.public && path.starts_with(&used.by) || used.by.is_empty() {
            continue;
        }
        let from = home(path, &handed_on, known);
        if from != used.by {
            imports.insert(Import { by: used.by.clone(), from });
        }
    }
    imports
}

/// The module in which what has this path is made.
fn home(mut path: Module, handed_on: &BTreeMap<Module, Module>, known: &BTreeSet<Module>) -> Module {
    // A chain longer than this is a circle.
    for _ in 0..16 {
        let names = (1..=path.len()).find(|&names| handed_on.contains_key(&path[..names]));
        let Some(names) = names else { break };
        let rest = path.split_off(names);
        path = handed_on[&path].iter().chain(&rest).cloned().collect();
    }
    let names = (0..=path.len()).rev().find(|&names| known.contains(&path[..names])).unwrap_or(0);
    path.truncate(names);
    path
}
