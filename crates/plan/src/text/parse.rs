//! Text into a plan, by recursive descent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use topology::{CpuSet, MAX_CPUS};
use workload::AppId;

use super::lexer::{Kind, Token, tokens};
use super::{DEFAULT_SLICE_NS, parse_ns};
use crate::{Bind, Memory, Plan, Run, Slot, Tree, TurnMode};

/// Deepest nesting that is read; the normal form has four levels, and recursion must end.
const MAX_DEPTH: usize = 32;

/// Why a text is not a plan: where, what stands there, and what could have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsePlanError {
    /// The text as given.
    pub text: String,
    /// Column of the offending token, in characters from 1.
    pub column: usize,
    /// What stands there.
    pub found: String,
    /// What was expected instead.
    pub expected: String,
}

impl fmt::Display for ParsePlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "column {}: found {}, expected {}", self.column, self.found, self.expected)?;
        // Control characters would shift the caret away from the column that it points at.
        let line: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        writeln!(f, "  {line}")?;
        write!(f, "  {:>width$}", '^', width = self.column)
    }
}

impl std::error::Error for ParsePlanError {}

impl FromStr for Plan {
    type Err = ParsePlanError;

    fn from_str(text: &str) -> Result<Plan, ParsePlanError> {
        Parser::over(text, |parser| parser.plan())
    }
}

impl FromStr for Tree {
    type Err = ParsePlanError;

    fn from_str(text: &str) -> Result<Tree, ParsePlanError> {
        Parser::over(text, |parser| parser.tree(0))
    }
}

/// What is wrong, before the text is attached.
struct Wrong {
    at: usize,
    expected: String,
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

type Parsed<T> = Result<T, Wrong>;

impl<'a> Parser<'a> {
    fn over<T>(text: &'a str, read: impl FnOnce(&mut Parser<'a>) -> Parsed<T>) -> Result<T, ParsePlanError> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        let read = read(&mut parser).and_then(|value| match parser.peek().kind {
            Kind::End => Ok(value),
            _ => Err(parser.wrong("the end of the plan, 'waiting [' or 'suspended ['")),
        });
        read.map_err(|wrong| {
            let token = parser.tokens[wrong.at];
            let found = match token.kind {
                Kind::End => "the end of the text".to_owned(),
                _ => format!("'{}'", token.text),
            };
            ParsePlanError { text: text.to_owned(), column: token.column, found, expected: wrong.expected }
        })
    }

    /// The token `ahead` of the next one; past the end there are only ends.
    fn token_at(&self, ahead: usize) -> Token<'a> {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> Token<'a> {
        self.token_at(0)
    }

    fn wrong(&self, expected: impl Into<String>) -> Wrong {
        Wrong { at: self.at, expected: expected.into() }
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn is_word(&self, ahead: usize, word: &str) -> bool {
        let token = self.token_at(ahead);
        token.kind == Kind::Word && token.text == word
    }

    fn is_mark(&self, ahead: usize, mark: &str) -> bool {
        let token = self.token_at(ahead);
        token.kind == Kind::Mark && token.text == mark
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let there = self.is_word(0, word);
        if there {
            self.next();
        }
        there
    }

    fn accept_mark(&mut self, mark: &str) -> bool {
        let there = self.is_mark(0, mark);
        if there {
            self.next();
        }
        there
    }

    fn plan(&mut self) -> Parsed<Plan> {
        let mut plan = Plan::default();
        if self.is_word(0, "idle") && !self.is_word(1, "on") {
            self.next();
        } else {
            plan.tree = Some(self.tree(0)?);
        }
        if self.is_word(0, "waiting") {
            plan.waiting = self.names()?;
        }
        if self.is_word(0, "suspended") {
            plan.suspended = self.names()?;
        }
        Ok(plan)
    }

    fn names(&mut self) -> Parsed<BTreeSet<AppId>> {
        self.next();
        let names = self.list(|parser| parser.name())?;
        Ok(names.into_iter().collect())
    }

    fn tree(&mut self, depth: usize) -> Parsed<Tree> {
        if depth > MAX_DEPTH {
            return Err(self.wrong(format!("at most {MAX_DEPTH} levels")));
        }
        // `on` after a word makes it a program's name, whatever the word is; `run on on 0` is the
        // one case that needs a look further, because a program may be called `on`.
        if self.is_word(1, "on") && !self.is_word(2, "on") {
            return self.run();
        }
        if self.is_word(0, "run") && self.is_word(2, "on") {
            self.next();
            return self.run();
        }
        let opens = |parser: &Parser<'_>, ahead| parser.is_mark(ahead, "[");
        if self.is_word(0, "side_by_side") {
            self.next();
            return Ok(Tree::SideBySide(self.list(|parser| parser.tree(depth + 1))?));
        }
        if self.is_word(0, "in_turn") {
            self.next();
            let mode = match () {
                () if self.accept_word("strict") => TurnMode::Strict,
                () if self.accept_word("filling") => TurnMode::Filling,
                () if opens(self, 0) => TurnMode::Strict,
                () => return Err(self.wrong("'strict', 'filling' or '['")),
            };
            return Ok(Tree::InTurn { mode, slots: self.list(|parser| parser.slot(depth + 1))? });
        }
        if self.is_word(0, "mixed") {
            self.next();
            let owner = if self.is_mark(0, "{") { self.owners()? } else { BTreeMap::new() };
            return Ok(Tree::Mixed { owner, parts: self.list(|parser| parser.tree(depth + 1))? });
        }
        if self.peek().kind == Kind::Word {
            self.next();
            return Err(self.wrong("'on' and a CPU list"));
        }
        Err(self.wrong("a program's name, 'side_by_side', 'in_turn' or 'mixed'"))
    }

    fn slot(&mut self, depth: usize) -> Parsed<Slot> {
        let mut slice_ns = DEFAULT_SLICE_NS;
        let token = self.peek();
        if matches!(token.kind, Kind::Duration | Kind::Number) {
            slice_ns = parse_ns(token.text)
                .and_then(|ns| if ns == 0 { Err("a slot lasts at least 1ns".to_owned()) } else { Ok(ns) })
                .map_err(|why| self.wrong(format!("a duration such as 20ms ({why})")))?;
            self.next();
        }
        Ok(Slot { slice_ns, tree: self.tree(depth)? })
    }

    fn run(&mut self) -> Parsed<Tree> {
        let app = self.name()?;
        self.next();
        let place = self.cpus()?;
        let mut run = Run::new(app, place);
        if let Some(threads) = self.threads()? {
            run.threads = threads;
        }
        if self.accept_word("bind") {
            if !self.accept_word("each") {
                return Err(self.wrong("'each'"));
            }
            run.bind = Bind::Each;
        }
        if self.accept_word("memory") {
            if !self.accept_word("follow") {
                return Err(self.wrong("'follow'"));
            }
            run.memory = Memory::Follow;
        }
        run.lends = self.accept_word("lends");
        Ok(Tree::Run(run))
    }

    /// `x 4` or `x4`.
    fn threads(&mut self) -> Parsed<Option<u32>> {
        let token = self.peek();
        let digits = match token.text.strip_prefix('x') {
            Some("") if token.kind == Kind::Word => {
                self.next();
                match self.peek().kind {
                    Kind::Number => self.peek().text,
                    _ => return Err(self.wrong("the number of threads")),
                }
            }
            Some(glued) if glued.bytes().all(|byte| byte.is_ascii_digit()) => glued,
            _ => return Ok(None),
        };
        let threads = digits.parse().map_err(|_| self.wrong(format!("at most {} threads", u32::MAX)))?;
        self.next();
        Ok(Some(threads))
    }

    fn name(&mut self) -> Parsed<AppId> {
        let name = match self.peek() {
            token if token.kind == Kind::Word => {
                AppId::new(token.text).map_err(|error| self.wrong(format!("a name ({error})")))
            }
            _ => Err(self.wrong("a program's name")),
        }?;
        self.next();
        Ok(name)
    }

    fn cpus(&mut self) -> Parsed<CpuSet> {
        let mut cpus = CpuSet::new();
        if self.accept_word("none") {
            return Ok(cpus);
        }
        loop {
            let first = self.cpu()?;
            let last_at = self.at + 1;
            let last = if self.accept_mark("-") { self.cpu()? } else { first };
            if last < first {
                return Err(Wrong { at: last_at, expected: format!("a CPU from {first} on") });
            }
            (first..=last).for_each(|cpu| cpus.insert(cpu));
            if !(self.is_mark(0, ",") && self.token_at(1).kind == Kind::Number) {
                return Ok(cpus);
            }
            self.next();
        }
    }

    fn cpu(&mut self) -> Parsed<u32> {
        let cpu = match self.peek() {
            token if token.kind == Kind::Number => token.text.parse().ok().filter(|&cpu| cpu < MAX_CPUS),
            _ => return Err(self.wrong("a CPU list such as 0-3,8")),
        };
        let cpu = cpu.ok_or_else(|| self.wrong(format!("a CPU below {MAX_CPUS}")))?;
        self.next();
        Ok(cpu)
    }

    fn owners(&mut self) -> Parsed<BTreeMap<u32, AppId>> {
        self.next();
        let mut owner = BTreeMap::new();
        loop {
            let cpus_at = self.at;
            let cpus = self.cpus()?;
            if !self.accept_mark(":") {
                return Err(self.wrong("':' and the owner's name"));
            }
            let app = self.name()?;
            for cpu in cpus.iter() {
                if owner.insert(cpu, app.clone()).is_some() {
                    let expected = format!("CPUs that have no owner yet (CPU {cpu} has)");
                    return Err(Wrong { at: cpus_at, expected });
                }
            }
            if self.accept_mark("}") {
                return Ok(owner);
            }
            if !self.accept_mark(",") {
                return Err(self.wrong("',' or '}'"));
            }
        }
    }

    /// `[` items separated by commas `]`; may be empty, which the checker judges, not the parser.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        if !self.accept_mark("[") {
            return Err(self.wrong("'['"));
        }
        let mut items = Vec::new();
        if self.accept_mark("]") {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.accept_mark("]") {
                return Ok(items);
            }
            if !self.accept_mark(",") {
                return Err(self.wrong("',' or ']'"));
            }
        }
    }
}
