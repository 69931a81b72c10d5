//! Which lines were touched after which: time slots, one live slot a line.
//!
//! A line that is touched takes the next slot and gives up the one it had. How many distinct lines were
//! touched since a slot is how many slots were taken later, without those of them that ended: a count of
//! bits, sped up by counts of words, of blocks of words, and so on. Only ends are written down, so that to
//! take a slot is to count one up. When the slots are used up the live ones move together; when more than
//! half were live then, there are twice as many from there on, so that moving costs at most a few steps a
//! touch.

/// 64-bit words a block, and slots of it.
const BLOCK_WORDS: usize = 16;
const BLOCK_BITS: u32 = 10;
/// Blocks a tile, and slots of it.
const TILE_BLOCKS: usize = 8;
const TILE_BITS: u32 = 13;
/// Tiles a region, and slots of it. The slots of a region other than one given are fewer than 2^16, so
/// that the counts below may be added up in 16 bits.
const REGION_TILES: usize = 8;
const REGION_BITS: u32 = 16;
const REGION: usize = 1 << REGION_BITS;
/// Regions an area, and slots of it.
const AREA_REGIONS: usize = 32;
const AREA_BITS: u32 = 21;
/// Numbers above stand for no slot.
const MOST: usize = 1 << 31;

pub(crate) struct Slots {
    ended: Vec<u64>,
    /// Ended slots of each word, block, tile, region, area.
    words: Vec<u8>,
    blocks: Vec<u16>,
    tiles: Vec<u16>,
    regions: Vec<u32>,
    areas: Vec<u32>,
    next: usize,
    /// Of all slots.
    ends: usize,
}

/// Where slots are after they moved together.
pub(crate) struct Moved {
    ended: Vec<u64>,
    /// Live slots before each word.
    before: Vec<u32>,
}

impl Moved {
    /// The new number of a live slot.
    pub(crate) fn to(&self, slot: u32) -> u32 {
        let word = slot as usize / 64;
        self.before[word] + (!self.ended[word] & ((1u64 << (slot % 64)) - 1)).count_ones()
    }
}

impl Slots {
    pub(crate) fn new() -> Slots {
        let mut slots = Slots {
            ended: vec![],
            words: vec![],
            blocks: vec![],
            tiles: vec![],
            regions: vec![],
            areas: vec![],
            next: 0,
            ends: 0,
        };
        slots.empty(REGION);
        slots
    }

    fn empty(&mut self, slots: usize) {
        let areas = slots.div_ceil(1 << AREA_BITS);
        self.ended = vec![0; slots / 64];
        self.words = vec![0; slots / 64];
        self.blocks = vec![0; slots >> BLOCK_BITS];
        self.tiles = vec![0; slots >> TILE_BITS];
        self.regions = vec![0; areas * AREA_REGIONS];
        self.areas = vec![0; areas];
        self.ends = 0;
    }

    /// Live slots.
    pub(crate) fn count(&self) -> u32 {
        (self.next - self.ends) as u32
    }

    /// Whether [`Slots::take`] needs [`Slots::make_room`] first.
    pub(crate) fn full(&self) -> bool {
        self.next == self.ended.len() * 64
    }

    /// The next slot, which is live from now on.
    #[inline]
    pub(crate) fn take(&mut self) -> u32 {
        let slot = self.next;
        self.next += 1;
        slot as u32
    }

    /// Ends a live slot; returns how many live ones come after it. Hardly anything in it branches: how far
    /// a slot is from the end of its block cannot be foretold, and a branch on it would cost more than the
    /// counting.
    #[inline]
    pub(crate) fn free(&mut self, slot: u32) -> u32 {
        let (slot, word) = (slot as usize, slot as usize / 64);
        let (block, tile, region) = (slot >> BLOCK_BITS, slot >> TILE_BITS, slot >> REGION_BITS);
        let area = slot >> AREA_BITS;
        let mut ended = (self.ended[word] >> (slot % 64)).count_ones();
        let words = beyond(part::<u8, BLOCK_WORDS>(&self.words, block).map(u16::from), word % BLOCK_WORDS);
        let blocks = beyond(*part::<u16, TILE_BLOCKS>(&self.blocks, tile), block % TILE_BLOCKS);
        let tiles = beyond(*part::<u16, REGION_TILES>(&self.tiles, region), tile % REGION_TILES);
        ended += u32::from(words.wrapping_add(blocks).wrapping_add(tiles));
        if self.next > REGION {
            for (at, &count) in part::<u32, AREA_REGIONS>(&self.regions, area).iter().enumerate() {
                ended += if at > region % AREA_REGIONS { count } else { 0 };
            }
            ended += self.areas[area + 1..].iter().sum::<u32>();
        }
        self.ended[word] |= 1 << (slot % 64);
        self.words[word] += 1;
        self.blocks[block] += 1;
        self.tiles[tile] += 1;
        self.regions[region] += 1;
        self.areas[area] += 1;
        self.ends += 1;
        (self.next - 1 - slot) as u32 - ended
    }

    /// What [`Slots::free`] will look at first.
    #[inline]
    pub(crate) fn fetch(&self, slot: u32) {
        let word = slot as usize / 64;
        crate::fetch(&self.ended[word]);
        crate::fetch(&self.words[word]);
    }

    /// Moves the live slots together, and makes more if over half are live. Whoever holds numbers of
    /// slots has to ask the result for the new ones.
    pub(crate) fn make_room(&mut self) -> Moved {
        let slots = self.ended.len() * 64;
        let ended = std::mem::take(&mut self.ended);
        let mut sum = 0;
        let before = ended
            .iter()
            .map(|word| {
                let before = sum;
                sum += word.count_zeros();
                before
            })
            .collect();
        let live = self.next - self.ends;
        let slots = if live > slots / 2 { slots * 2 } else { slots };
        assert!(slots <= MOST, "more than 2^30 distinct lines (64 GiB) cannot be told apart: sample");
        self.empty(slots);
        self.next = live;
        Moved { ended, before }
    }
}

/// The `N` entries of one unit.
#[inline]
fn part<T, const N: usize>(all: &[T], unit: usize) -> &[T; N] {
    all[unit * N..(unit + 1) * N].try_into().expect("N entries")
}

/// The counts after the one at `index`, added up.
#[inline]
fn beyond<const N: usize>(counts: [u16; N], index: usize) -> u16 {
    let one = |(at, &count): (usize, &u16)| if at as u16 > index as u16 { count } else { 0 };
    counts.iter().enumerate().map(one).fold(0, u16::wrapping_add)
}
