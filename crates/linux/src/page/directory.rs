//! One application's pages on disk.

use std::io::{self, Read};
use std::mem::offset_of;
use std::path::{Path, PathBuf};

use super::access::open_of;
use super::{MAGIC, Owner, PAGE_BYTES, Page, PageName, Raw, VERSION, pack};
use crate::error::{Error, Result};
use crate::host::{self, FileKind};
use crate::procfs::Process;
use crate::root::Root;

/// Bytes of a tree of bubbles that are read.
const MOST_TREE: u64 = 16 * 1024;

/// The directory of one application's pages.
#[derive(Clone, Debug)]
pub struct PageDir {
    path: PathBuf,
    /// Whose program it is: what lies there is this user's.
    owner: u32,
}

impl PageDir {
    /// Makes the directory (or takes the existing one, if it is ours alone) with its `default` page:
    /// the target and the declaration that processes start with.
    pub fn create(path: impl Into<PathBuf>, target: u32, declared_rigid: bool) -> Result<PageDir> {
        let path = path.into();
        match host::with(|host| host.create_directory(&path, 0o700)) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("make the directory of pages", path, e));
            }
            _ => {}
        }
        let info = host::with(|host| host.inspect(&path)).map_err(|e| Error::io("look at", &path, e))?;
        let owner = host::own_uid();
        if info.kind != FileKind::Directory || info.uid != owner || info.mode & 0o022 != 0 {
            let why = "it must be a directory of this user that nobody else can write to; remove it";
            return Err(Error::io("use the directory of pages", path, io::Error::other(why)));
        }
        let pages = PageDir { path, owner };
        pages.set_default(target, declared_rigid)?;
        Ok(pages)
    }

    /// A directory of that user's that was made earlier, perhaps by a scheduler that has died.
    pub fn open_of(path: impl Into<PathBuf>, owner: u32) -> PageDir {
        PageDir { path: path.into(), owner }
    }

    fn is_ours(&self) -> bool {
        self.owner == host::own_uid()
    }

    /// The path as it was given, which [`PAGES_VARIABLE`](super::PAGES_VARIABLE) names to programs; empty for
    /// a program without pages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What processes that start from now on begin with. Ours is replaced at once; in another user's the wish
    /// alone is written, eight bytes that no process reads half of, and only where there is a page.
    pub fn set_default(&self, target: u32, declared_rigid: bool) -> Result<()> {
        if !self.is_ours() {
            if let Some(page) = self.open_page("default")? {
                page.set_target(target);
            }
            return Ok(());
        }
        let mut bytes = vec![0u8; PAGE_BYTES];
        let mut put =
            |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
        put(offset_of!(Raw, magic), &MAGIC.to_ne_bytes());
        put(offset_of!(Raw, version), &VERSION.to_ne_bytes());
        put(offset_of!(Raw, bytes), &(PAGE_BYTES as u32).to_ne_bytes());
        put(offset_of!(Raw, rigid), &(u32::from(declared_rigid) << 2).to_ne_bytes());
        put(offset_of!(Raw, node), &pack(target, 1).to_ne_bytes());
        let (path, draft) = (self.path.join("default"), self.path.join(".default"));
        let written = host::replace(&path, &draft, &bytes, 0o600);
        written.map_err(|e| Error::io("write the default page", path, e))
    }

    /// The page of a process; `None` if it has none (yet).
    pub fn page(&self, name: impl Into<PageName>) -> Result<Option<Page>> {
        self.open_page(&name.into().to_string())
    }

    fn open_page(&self, name: &str) -> Result<Option<Page>> {
        match Page::open_of(&self.path.join(name), self.owner) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            result => result,
        }
    }

    /// All pages that are ready, by name, those of ended processes included.
    pub fn pages(&self) -> Result<Vec<(PageName, Page)>> {
        let error = |e| Error::io("list", &self.path, e);
        let mut names: Vec<PageName> = Vec::new();
        for entry in host::with(|host| host.names(&self.path)).map_err(error)? {
            names.extend(entry.name.to_str().and_then(|name| name.parse::<PageName>().ok()));
        }
        names.sort_unstable();
        let mut pages = Vec::new();
        for name in names {
            if let Some(page) = self.page(name)? {
                pages.push((name, page));
            }
        }
        Ok(pages)
    }

    fn tree_path(&self, name: PageName) -> PathBuf {
        self.path.join(format!("{name}.bubbles"))
    }

    /// The tree of bubbles that a process left beside its page, for people; no more of it than is shown, and
    /// nothing in it that a terminal obeys.
    pub fn bubbles(&self, name: impl Into<PageName>) -> Option<String> {
        let file = open_of(&self.tree_path(name.into()), self.owner).ok()?;
        let mut bytes = Vec::new();
        file.take(MOST_TREE).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        Some(text.chars().filter(|c| *c == '\n' || !c.is_control()).collect())
    }

    /// Removes what a process that has ended left here. What is another user's is that user's to remove: the
    /// path may lead anywhere by now.
    pub fn remove_page(&self, name: impl Into<PageName>) -> Result<()> {
        let name = name.into();
        if !self.is_ours() {
            return Ok(());
        }
        for path in [self.path.join(name.to_string()), self.tree_path(name)] {
            match host::with(|host| host.remove_file(&path)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove the page", path, e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the pages whose process does not live any more and returns their names.
    pub fn remove_stale(&self, living: &[Process], root: &Root) -> Result<Vec<PageName>> {
        let mut removed = Vec::new();
        for (name, page) in self.pages()? {
            if page.owner(living, root) == Owner::Nobody {
                self.remove_page(name)?;
                removed.push(name);
            }
        }
        Ok(removed)
    }

    /// Removes the directory with all pages. Programs that still run keep their mapping.
    pub fn remove(self) -> Result<()> {
        host::with(|host| host.remove_tree(&self.path))
            .map_err(|e| Error::io("remove the directory of pages", self.path, e))
    }
}
