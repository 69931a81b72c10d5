//! An ELF object as the analysis needs it: its functions, its code, and which imported function a
//! call through the linkage table or a slot of the global offset table means.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use iced_x86::{Code, Decoder, DecoderOptions, Instruction};
use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget};
use object::{SectionKind, SymbolKind};

use crate::reason::Cause;

pub struct Function {
    pub name: String,
    pub start: u64,
    pub end: u64,
}

struct Section {
    address: u64,
    bytes: Vec<u8>,
    is_linkage: bool,
}

pub struct Image {
    /// By their starts; of several names at one address the first.
    pub functions: BTreeMap<u64, Function>,
    /// Names that it needs from elsewhere.
    pub imports: BTreeSet<String>,
    pub has_thread_local_data: bool,
    pub processor_is_analysed: bool,
    /// The note of `coplace/resizable.h`.
    pub has_note: bool,
    sections: Vec<Section>,
    /// Addresses of sections that nobody writes.
    read_only: Vec<std::ops::Range<u64>>,
    /// Content of sections of data.
    data: Vec<Vec<u8>>,
    /// Stubs of the linkage table, and slots of the global offset table.
    imported_at: HashMap<u64, String>,
}

impl Image {
    pub fn read(bytes: &[u8]) -> Result<Image, Cause> {
        let file = ElfFile64::<object::Endianness>::parse(bytes).map_err(|_| Cause::NotElf)?;
        let endian = file.endian();
        let mut image = Image {
            functions: functions(&file),
            imports: BTreeSet::new(),
            has_thread_local_data: file
                .elf_program_headers()
                .iter()
                .any(|header| header.p_type(endian) == elf::PT_TLS && header.p_memsz(endian) > 0),
            has_note: has_note(&file),
            processor_is_analysed: file.architecture() == object::Architecture::X86_64,
            sections: Vec::new(),
            read_only: file
                .sections()
                .filter(|section| {
                    matches!(section.kind(), SectionKind::ReadOnlyData | SectionKind::ReadOnlyString)
                })
                .map(|section| section.address()..section.address().saturating_add(section.size()))
                .collect(),
            data: data(&file),
            imported_at: HashMap::new(),
        };
        let undefined = file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
        image.imports = undefined.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect();
        if !image.processor_is_analysed {
            return Ok(image);
        }
        image.read_slots(&file);
        image.read_code(&file);
        image.read_stubs();
        Ok(image)
    }

    fn read_slots(&mut self, file: &ElfFile64<'_>) {
        let (Some(relocations), Some(symbols)) = (file.dynamic_relocations(), file.dynamic_symbol_table())
        else {
            return;
        };
        for (slot, relocation) in relocations {
            let kind = match relocation.flags() {
                RelocationFlags::Elf { r_type } => r_type,
                _ => continue,
            };
            self.has_thread_local_data |= [
                elf::R_X86_64_DTPMOD64,
                elf::R_X86_64_DTPOFF64,
                elf::R_X86_64_TPOFF64,
                elf::R_X86_64_TLSDESC,
            ]
            .contains(&kind);
            let RelocationTarget::Symbol(index) = relocation.target() else { continue };
            let Ok(symbol) = symbols.symbol_by_index(index) else { continue };
            let binds_function = [elf::R_X86_64_JUMP_SLOT, elf::R_X86_64_GLOB_DAT, elf::R_X86_64_64];
            if binds_function.contains(&kind)
                && symbol.is_undefined()
                && let Ok(name) = symbol.name()
            {
                self.imported_at.insert(slot, name.to_owned());
            }
        }
    }

    fn read_code(&mut self, file: &ElfFile64<'_>) {
        for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
            let Ok(bytes) = section.data() else { continue };
            let is_linkage = section.name().is_ok_and(|name| name.starts_with(".plt"));
            self.sections.push(Section { address: section.address(), bytes: bytes.to_vec(), is_linkage });
        }
    }

    /// A stub is an indirect jump through a slot, behind no more than a landing mark.
    fn read_stubs(&mut self) {
        let mut stubs = Vec::new();
        for section in self.sections.iter().filter(|section| section.is_linkage) {
            for instruction in decode(&section.bytes, section.address) {
                if instruction.code() != Code::Jmp_rm64 || !instruction.is_ip_rel_memory_operand() {
                    continue;
                }
                if let Some(name) = self.imported_at.get(&instruction.ip_rel_memory_address()) {
                    // Entered at the jump, or at the start of the stub's 16 (or 8) bytes.
                    let at = instruction.ip();
                    stubs.extend([(at, name.clone()), (at & !15, name.clone()), (at & !7, name.clone())]);
                }
            }
        }
        for (at, name) in stubs {
            self.imported_at.entry(at).or_insert(name);
        }
    }

    /// The imported function behind an address of a stub or a slot.
    pub fn imported(&self, address: u64) -> Option<&str> {
        self.imported_at.get(&address).map(String::as_str)
    }

    pub fn is_read_only(&self, address: u64) -> bool {
        self.read_only.iter().any(|range| range.contains(&address))
    }

    /// The function that holds this address.
    pub fn function_of(&self, address: u64) -> Option<&Function> {
        self.functions.range(..=address).next_back().map(|(_, f)| f).filter(|f| address < f.end)
    }

    /// The instructions of a function, one after another.
    pub fn code_of(&self, function: &Function) -> impl Iterator<Item = Instruction> + '_ {
        let bytes = self.code_at(function.start).unwrap_or_default();
        let length = usize::try_from(function.end - function.start).unwrap_or(usize::MAX);
        decode(&bytes[..bytes.len().min(length)], function.start)
    }

    /// Whether one of these stands in its data, as a text of its own or within one.
    pub fn names_any_of<'a>(&self, names: impl IntoIterator<Item = &'a &'a str>) -> bool {
        names.into_iter().any(|name| {
            let finder = memchr::memmem::Finder::new(name);
            self.data.iter().any(|data| finder.find(data).is_some())
        })
    }

    pub fn code_at(&self, address: u64) -> Option<&[u8]> {
        self.sections.iter().find_map(|section| {
            let at = address.checked_sub(section.address)?;
            section.bytes.get(usize::try_from(at).ok()?..).filter(|bytes| !bytes.is_empty())
        })
    }

    /// All code but the linkage tables, one instruction after another.
    pub fn all_code(&self) -> impl Iterator<Item = Instruction> + '_ {
        let code = self.sections.iter().filter(|section| !section.is_linkage);
        code.flat_map(|section| decode(&section.bytes, section.address))
    }
}

fn data(file: &ElfFile64<'_>) -> Vec<Vec<u8>> {
    let is_data =
        |kind| matches!(kind, SectionKind::Data | SectionKind::ReadOnlyData | SectionKind::ReadOnlyString);
    let sections = file.sections().filter(|section| is_data(section.kind()));
    sections.filter_map(|section| section.data().ok().map(<[u8]>::to_vec)).collect()
}

fn functions(file: &ElfFile64<'_>) -> BTreeMap<u64, Function> {
    let mut functions = BTreeMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0) {
        if let Ok(name) = symbol.name() {
            let (start, end) = (symbol.address(), symbol.address().saturating_add(symbol.size()));
            functions.entry(start).or_insert(Function { name: name.to_owned(), start, end });
        }
    }
    functions
}

const NOTE_NAME: &[u8] = b"coplace";
const NOTE_RESIZABLE: u32 = 1;

fn has_note(file: &ElfFile64<'_>) -> bool {
    let endian = file.endian();
    let notes = file
        .elf_program_headers()
        .iter()
        .filter_map(|header| header.notes(endian, file.data()).ok().flatten());
    notes.into_iter().any(|mut notes| {
        std::iter::from_fn(|| notes.next().ok().flatten()).any(|note| {
            note.name() == NOTE_NAME && note.n_type(endian) == object::elf::NoteType(NOTE_RESIZABLE)
        })
    })
}

/// Names that an object needs from elsewhere; none of a file that is no ELF object.
pub fn imports(file: &std::fs::File) -> Vec<String> {
    let cache = object::ReadCache::new(file);
    let Ok(file) = ElfFile64::<object::Endianness, _>::parse(&cache) else { return Vec::new() };
    let undefined = file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
    undefined.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect()
}

pub fn decode(bytes: &[u8], address: u64) -> impl Iterator<Item = Instruction> + '_ {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
}
