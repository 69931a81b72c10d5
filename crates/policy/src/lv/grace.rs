//! The grace period (paper II-B): "applications have a grace period to react during which the old
//! partition size is kept. When the application eventually changes, the operating system scheduler
//! can react immediately."

use std::collections::BTreeMap;

use plan::Remark;
use workload::AppId;

use super::{Equilibrium, Layer, standing};
use crate::Asked;
use crate::common::context::Part;
use crate::common::levels::{Cut, id};

/// Which programs are asked for narrower teams, and what follows from that.
#[derive(Default)]
pub(super) struct Grace {
    pub asked: BTreeMap<AppId, Asked>,
    /// Threads that they are asked for while they keep their partition.
    pub threads: BTreeMap<AppId, u32>,
    pub wake_at_ns: Option<u64>,
    pub remark: Option<Remark>,
}

impl Equilibrium<'_, '_> {
    /// Puts programs whose team is still too wide for their new partition back onto the old one, in
    /// the turns of its level.
    pub(super) fn grace(&self, cuts: &[Cut], layers: &mut Vec<Layer>) -> Grace {
        let (cx, mut grace) = (self.cx, Grace::default());
        let mut back: Vec<(usize, Part)> = Vec::new();
        for part in layers.iter_mut().flat_map(|layer| &mut layer.parts) {
            let place = part.place.clone();
            part.members.retain(|&index| {
                let need = &cx.needs[index];
                let threads = cx.run(need, &place).threads;
                let wide = need.app.accepts_width() && !need.app.waits_passively;
                let too_wide = wide && need.app.team.is_some_and(|team| team > threads);
                let before = need.before.filter(|before| too_wide && before.len() > place.len());
                let Some((before, level)) = before.and_then(|b| Some((b, standing(cuts, b)?))) else {
                    return true;
                };
                let app = id(cx, index);
                let now_ns = cx.snapshot.now_ns;
                let since_ns = cx.memory.level.asked.get(app).map_or(now_ns, |asked| asked.since_ns);
                let end_ns = since_ns.saturating_add(cx.settings.grace_ns);
                if end_ns <= now_ns {
                    return true;
                }
                grace.asked.insert(app.clone(), Asked { since_ns, place: place.clone() });
                grace.threads.insert(app.clone(), threads);
                grace.wake_at_ns = Some(grace.wake_at_ns.map_or(end_ns, |wake| wake.min(end_ns)));
                back.push((level, Part { place: before.clone(), members: vec![index] }));
                false
            });
        }
        for layer in layers.iter_mut() {
            layer.parts.retain(|part| !part.members.is_empty());
        }
        let (apps, longest_ns) = (grace.asked.keys().cloned().collect(), cx.settings.grace_ns);
        grace.remark = (!grace.asked.is_empty()).then_some(Remark::Grace { apps, longest_ns });
        for (level, part) in back {
            put(layers, level, part);
        }
        grace
    }
}

/// Adds a program to the turns of its level.
fn put(layers: &mut Vec<Layer>, level: usize, part: Part) {
    match layers.iter_mut().find(|layer| layer.level == level) {
        None => layers.push(Layer { level, parts: vec![part] }),
        Some(layer) => match layer.parts.iter_mut().find(|other| other.place == part.place) {
            Some(other) => {
                other.members.extend(part.members);
                other.members.sort_unstable();
            }
            None => {
                layer.parts.push(part);
                layer.parts.sort_by(|a, b| a.place.iter().cmp(b.place.iter()));
            }
        },
    }
}
