//! Reading what a file's code uses, token by token.

use std::collections::BTreeSet;

use coplace_tests::tokens::tokens;

use super::Module;

/// A path that code uses.
pub struct Used {
    /// The module in which it stands.
    pub by: Module,
    /// As it is written.
    path: Vec<String>,
    /// What it is called here; `None` for all that is there (`*`), and outside `use`.
    pub name: Option<String>,
    /// Whether others may use it from here.
    pub public: bool,
}

impl Used {
    /// The path from the crate's root; `None` where it leads out of the crate.
    pub fn absolute(&self, known: &BTreeSet<Module>) -> Option<Module> {
        let first = self.path.first()?;
        let supers = self.path.iter().take_while(|name| *name == "super").count();
        let (mut base, rest) = match first.as_str() {
            "crate" => (Vec::new(), &self.path[1..]),
            "self" => (self.by.clone(), &self.path[1..]),
            "super" => (self.by[..self.by.len().checked_sub(supers)?].to_vec(), &self.path[supers..]),
            child => {
                let module: Module = self.by.iter().cloned().chain([child.to_owned()]).collect();
                (known.contains(&module).then(|| self.by.clone())?, &self.path[..])
            }
        };
        base.extend(rest.iter().cloned());
        Some(base)
    }
}

/// What a file has of interest.
pub struct Source {
    pub module: Module,
    /// The file's module and those that are written in it.
    pub modules: Vec<Module>,
    /// Modules in other files that are there for tests.
    pub tests: Vec<Module>,
    pub uses: Vec<Used>,
}

impl Source {
    pub fn read(module: Module, text: &str) -> Source {
        let mut source = Source {
            modules: vec![module.clone()],
            tests: Vec::new(),
            uses: Vec::new(),
            module: module.clone(),
        };
        let mut reader = Reader {
            tokens: tokens(text).into_iter().map(|token| token.text).collect(),
            at: 0,
            source: &mut source,
            inside: vec![(module, 0)],
        };
        reader.all();
        source
    }
}

struct Reader<'a> {
    tokens: Vec<String>,
    at: usize,
    source: &'a mut Source,
    /// The modules around, each with the brackets that are open in it.
    inside: Vec<(Module, usize)>,
}

impl Reader<'_> {
    fn token(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    fn module(&self) -> Module {
        self.inside.last().expect("the file's own stays").0.clone()
    }

    fn child(&self, name: &str) -> Module {
        self.module().into_iter().chain([name.to_owned()]).collect()
    }

    fn all(&mut self) {
        while self.at < self.tokens.len() {
            match (self.token(0), self.token(1)) {
                ("#", "[") if self.is_for_tests() => self.skip_item(),
                ("mod", name) if self.token(2) == "{" => {
                    let module = self.child(name);
                    self.source.modules.push(module.clone());
                    self.inside.push((module, 0));
                    self.at += 3;
                }
                ("use", _) => self.import(),
                ("crate" | "super" | "self", "::") => self.path(),
                ("{", _) => {
                    self.inside.last_mut().expect("the file's own stays").1 += 1;
                    self.at += 1;
                }
                ("}", _) => {
                    let around = self.inside.last_mut().expect("the file's own stays");
                    match around.1 {
                        0 => drop(self.inside.pop()),
                        _ => around.1 -= 1,
                    }
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
    }

    fn is_for_tests(&self) -> bool {
        let words: Vec<&str> = (2..7).map(|ahead| self.token(ahead)).collect();
        words.starts_with(&["cfg", "(", "test", ")"]) || words == ["cfg", "(", "all", "(", "test"]
    }

    /// An item with its attributes, to its `;` or its brackets.
    fn skip_item(&mut self) {
        let mut open = 0;
        let (mut is_use, mut last) = (false, String::new());
        loop {
            let token = self.token(0).to_owned();
            match token.as_str() {
                "" => return,
                "(" | "[" | "{" => open += 1,
                ")" | "]" | "}" => open -= 1,
                "use" => is_use |= open == 0,
                name if last == "mod" && open == 0 && self.token(1) == ";" => {
                    let module = self.child(name);
                    self.source.tests.push(module);
                }
                _ => {}
            }
            self.at += 1;
            if open == 0 && (token == ";" || token == "}" && !is_use) {
                return;
            }
            last = token;
        }
    }

    /// A path outside `use`.
    fn path(&mut self) {
        let in_visibility = self.at > 0 && self.tokens[self.at - 1] == "in";
        let mut path = vec![self.token(0).to_owned()];
        self.at += 1;
        while self.token(0) == "::" && self.token(1).starts_with(|c: char| c.is_alphabetic() || c == '_') {
            path.push(self.token(1).to_owned());
            self.at += 2;
        }
        if !in_visibility {
            self.source.uses.push(Used { by: self.module(), path, name: None, public: false });
        }
    }

    fn import(&mut self) {
        let public = self.at > 0 && matches!(self.tokens[self.at - 1].as_str(), "pub" | ")");
        self.at += 1;
        self.tree(&[], public);
    }

    /// One path of a `use`, or several in brackets.
    fn tree(&mut self, before: &[String], public: bool) {
        let mut path = before.to_vec();
        loop {
            match self.token(0) {
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while !matches!(self.token(0), "}" | "") {
                        self.tree(&path, public);
                    }
                    self.at += 1;
                    if self.token(0) == "," {
                        self.at += 1;
                    }
                    return;
                }
                "*" => {
                    self.at += 1;
                    return self.used(path, None, public);
                }
                "," | "}" | ";" | "as" | "" => break,
                name => {
                    path.push(name.to_owned());
                    self.at += 1;
                }
            }
        }
        // `a::{self}` is `a`.
        if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
            path.pop();
        }
        let mut name = path.last().cloned();
        if self.token(0) == "as" {
            name = Some(self.token(1).to_owned());
            self.at += 2;
        }
        if self.token(0) == "," {
            self.at += 1;
        }
        self.used(path, name, public);
    }

    fn used(&mut self, path: Vec<String>, name: Option<String>, public: bool) {
        if self.token(0) == "," {
            self.at += 1;
        }
        let by = self.module();
        self.source.uses.push(Used { by, path, name, public });
    }
}
