//! Plain files, directories and locks: what survives a crash, and what does not.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use linux::host::{FileInfo, FileKind};

/// What a file holds: bytes, or words that somebody has mapped.
#[derive(Debug)]
pub(crate) enum Body {
    Bytes(Vec<u8>),
    Mapped(Arc<[AtomicU64]>),
}

/// Open files and mappings outlive the name that they were opened by.
pub(crate) type Content = Arc<Mutex<Body>>;

pub(crate) fn bytes_of(content: &Content) -> Vec<u8> {
    match &*content.lock().expect("no thread but this one") {
        Body::Bytes(bytes) => bytes.clone(),
        Body::Mapped(words) => {
            words.iter().flat_map(|word| word.load(Ordering::SeqCst).to_ne_bytes()).collect()
        }
    }
}

/// The content as words; `None` where it is shorter than that.
pub(crate) fn map(content: &Content, bytes: usize) -> Option<Arc<[AtomicU64]>> {
    let mut body = content.lock().expect("no thread but this one");
    let words = match &*body {
        Body::Mapped(words) => Arc::clone(words),
        Body::Bytes(text) => {
            let whole = text.chunks(8).map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                AtomicU64::new(u64::from_ne_bytes(word))
            });
            whole.collect()
        }
    };
    if size_of_val(&*words) < bytes {
        return None;
    }
    *body = Body::Mapped(Arc::clone(&words));
    Some(words)
}

#[derive(Debug)]
enum Kind {
    Directory,
    File(Content),
    Socket,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    uid: u32,
    mode: u32,
    inode: u64,
}

#[derive(Debug)]
struct Held {
    number: u64,
    pid: u32,
    shared: bool,
}

/// The files of the model, by their paths.
#[derive(Debug, Default)]
pub(crate) struct Files {
    nodes: BTreeMap<PathBuf, Node>,
    locks: BTreeMap<u64, Vec<Held>>,
    next: u64,
}

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl Files {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn node(&self, path: &Path) -> io::Result<&Node> {
        self.nodes.get(path).ok_or_else(|| error(libc::ENOENT))
    }

    fn parent_exists(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        let is_there = parent == Path::new("/")
            || self.nodes.get(parent).is_some_and(|node| matches!(node.kind, Kind::Directory));
        if is_there { Ok(()) } else { Err(error(libc::ENOENT)) }
    }

    fn put(&mut self, path: &Path, kind: Kind, uid: u32, mode: u32) {
        let inode = self.number();
        self.nodes.insert(path.to_owned(), Node { kind, uid, mode, inode });
    }

    pub fn create_directory(&mut self, path: &Path, uid: u32, mode: u32) -> io::Result<()> {
        self.put_where_nothing_is(path, Kind::Directory, uid, mode, libc::EEXIST)
    }

    pub fn make_socket(&mut self, path: &Path, uid: u32, mode: u32) -> io::Result<()> {
        self.put_where_nothing_is(path, Kind::Socket, uid, mode, libc::EADDRINUSE)
    }

    fn put_where_nothing_is(
        &mut self,
        path: &Path,
        kind: Kind,
        uid: u32,
        mode: u32,
        taken: i32,
    ) -> io::Result<()> {
        self.parent_exists(path)?;
        if self.nodes.contains_key(path) {
            return Err(error(taken));
        }
        self.put(path, kind, uid, mode);
        Ok(())
    }

    pub fn create(&mut self, path: &Path, bytes: &[u8], uid: u32, mode: u32) -> io::Result<()> {
        self.parent_exists(path)?;
        match self.nodes.get(path).map(|node| &node.kind) {
            None => {
                let content = Arc::new(Mutex::new(Body::Bytes(bytes.to_vec())));
                self.put(path, Kind::File(content), uid, mode);
            }
            Some(Kind::File(content)) => {
                *content.lock().expect("no thread but this one") = Body::Bytes(bytes.to_vec());
            }
            Some(_) => return Err(error(libc::EISDIR)),
        }
        Ok(())
    }

    pub fn content(&self, path: &Path) -> io::Result<Content> {
        match &self.node(path)?.kind {
            Kind::File(content) => Ok(Arc::clone(content)),
            Kind::Directory => Err(error(libc::EISDIR)),
            Kind::Socket => Err(error(libc::ENXIO)),
        }
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.parent_exists(to)?;
        if matches!(self.nodes.get(to).map(|node| &node.kind), Some(Kind::Directory)) {
            return Err(error(libc::EISDIR));
        }
        let node = self.nodes.remove(from).ok_or_else(|| error(libc::ENOENT))?;
        self.nodes.insert(to.to_owned(), node);
        Ok(())
    }

    fn below<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        let from =
            self.nodes.range::<Path, _>((std::ops::Bound::Excluded(directory), std::ops::Bound::Unbounded));
        from.map(|entry| entry.0).take_while(move |path| path.starts_with(directory))
    }

    pub fn names(&self, directory: &Path) -> io::Result<Vec<(String, u64)>> {
        if !matches!(self.node(directory)?.kind, Kind::Directory) {
            return Err(error(libc::ENOTDIR));
        }
        let names = self.below(directory).filter(|path| path.parent() == Some(directory));
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(names.map(|path| (name(path), self.nodes[path].inode)).collect())
    }

    pub fn inspect(&self, path: &Path) -> io::Result<FileInfo> {
        let node = self.node(path)?;
        let (kind, bytes) = match &node.kind {
            Kind::Directory => (FileKind::Directory, 0),
            Kind::Socket => (FileKind::Other, 0),
            Kind::File(content) => (FileKind::File, bytes_of(content).len() as u64),
        };
        Ok(FileInfo { kind, uid: node.uid, mode: node.mode, bytes })
    }

    pub fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        match self.node(path)?.kind {
            Kind::Directory => Err(error(libc::EISDIR)),
            _ => {
                self.nodes.remove(path);
                Ok(())
            }
        }
    }

    pub fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        if !matches!(self.node(path)?.kind, Kind::Directory) {
            return Err(error(libc::ENOTDIR));
        }
        if self.below(path).next().is_some() {
            return Err(error(libc::ENOTEMPTY));
        }
        self.nodes.remove(path);
        Ok(())
    }

    pub fn remove_tree(&mut self, path: &Path) -> io::Result<()> {
        self.node(path)?;
        let all: Vec<PathBuf> = self.below(path).cloned().collect();
        all.iter().for_each(|path| drop(self.nodes.remove(path)));
        self.nodes.remove(path);
        Ok(())
    }

    /// The number of the lock, or `None` where another process has it.
    pub fn lock(
        &mut self,
        path: &Path,
        pid: u32,
        uid: u32,
        shared: bool,
    ) -> io::Result<(Content, Option<u64>)> {
        if !self.nodes.contains_key(path) {
            self.create(path, b"", uid, 0o600)?;
        }
        let (content, inode) = (self.content(path)?, self.node(path)?.inode);
        let number = self.number();
        let held = self.locks.entry(inode).or_default();
        if !held.iter().all(|other| shared && other.shared) {
            return Ok((content, None));
        }
        held.push(Held { number, pid, shared });
        Ok((content, Some(number)))
    }

    pub fn unlock(&mut self, number: u64) {
        self.locks.values_mut().for_each(|held| held.retain(|lock| lock.number != number));
    }

    /// A process has died: the kernel takes its locks back.
    pub fn release_all(&mut self, pid: u32) {
        self.locks.values_mut().for_each(|held| held.retain(|lock| lock.pid != pid));
    }

    /// All paths below a directory, for questions about what is left behind.
    pub fn paths_below(&self, directory: &Path) -> Vec<PathBuf> {
        self.below(directory).cloned().collect()
    }
}
