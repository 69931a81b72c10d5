//! Teams that were asked to be narrower are left to themselves again; pages of who has ended go.

use linux::host;
use linux::page::{Owner, Page, PageDir};
use protocol::AppRecord;
use workload::Malleability;

use super::Freeing;

impl Freeing<'_> {
    pub(super) fn clear_targets(&mut self) {
        if !host::is_directory(&self.record.pages) {
            return;
        }
        let pages = PageDir::open_of(&self.record.pages, self.record.uid);
        let rigid = self.record.demand.malleability == Malleability::Rigid;
        // A directory that was there before the program came may serve others, too.
        let attached = self.record.terms.attached;
        let members = &self.members;
        let is_its = |page: &Page| match page.owner(members, self.root) {
            Owner::Is(process) => members.contains(&process),
            Owner::OneOf(_) | Owner::Nobody => false,
        };
        let own = |page: &Page| !attached || is_its(page);
        let wished = !attached && host::exists(&self.record.pages.join("default"));
        let cleared = if wished { pages.set_default(0, rigid) } else { Ok(()) }.and_then(|()| pages.pages());
        match cleared {
            Ok(pages) => {
                for (_, page) in pages.into_iter().filter(|(_, page)| page.target() != 0 && own(page)) {
                    page.set_target(0);
                }
            }
            Err(error) => self.problem(error),
        }
    }
}

/// Removes the pages of a program that has ended. Other users' paths are theirs to remove: they
/// could have made them point anywhere.
pub fn remove_pages(record: &AppRecord) {
    if !record.terms.attached && record.uid == host::own_uid() {
        let _ = host::with(|host| host.remove_tree(&record.pages));
    }
}
