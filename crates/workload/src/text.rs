//! Text as archives, spreadsheets and other systems have it: packed with gzip, with a mark at its beginning,
//! in UTF-16 or Latin-1.

use std::io::Read;
use std::path::Path;

use thiserror::Error;

/// More than any workload or matrix; what unpacks to more than this is none.
const MOST_BYTES: u64 = 4 << 30;

/// Ways of packing by their first bytes: (bytes, name, how it is unpacked).
const PACKED: &[(&[u8], &str, &str)] = &[
    (b"BZh", "bzip2", "bunzip2 -k FILE"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", "unxz -k FILE"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "unzstd FILE"),
    (&[0x1f, 0x9d], "compress", "gzip -dk FILE"),
    (&[b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c], "7-Zip", "7z x FILE"),
    // Spreadsheets are such archives, too.
    (b"PK\x03\x04", "zip (as .xlsx and .ods are)", "unzip FILE, or save a spreadsheet as CSV"),
];
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Why bytes are no text that can be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NoText {
    /// In a format that is not unpacked here.
    #[error("it is packed with {with}, and only gzip is unpacked here: {unpack}")]
    Packed {
        /// The format.
        with: &'static str,
        /// The command that unpacks it.
        unpack: &'static str,
    },
    /// By gzip, and not whole.
    #[error("it is packed with gzip and damaged or cut off: {why}")]
    Damaged {
        /// What the decoder said.
        why: String,
    },
    /// It would fill the memory.
    #[error("it unpacks to more than {} GiB", MOST_BYTES >> 30)]
    TooLong,
    /// It has the mark of UTF-16, and what follows is none.
    #[error("it begins as UTF-16 text and is none: save it as UTF-8")]
    NoUtf16,
    /// It has bytes that no text has.
    #[error("it holds zero bytes, so that it is no text; if it is UTF-16 or UTF-32, save it as UTF-8")]
    Binary,
}

/// Why a file is no text that can be read.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// It cannot be read.
    #[error("cannot read {path}: {error}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// It was read, and is no text.
    #[error("cannot read {path}: {why}")]
    NoText {
        /// The file.
        path: String,
        /// What stands in it instead.
        why: NoText,
    },
}

/// The text of a file, unpacked and without the mark that some systems put before it.
pub fn read(path: &Path) -> Result<String, Unreadable> {
    let shown = || path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Unreadable::File { path: shown(), error })?;
    of_bytes(bytes).map_err(|why| Unreadable::NoText { path: shown(), why })
}

/// The same of bytes. What is neither UTF-8 nor UTF-16 is taken for Latin-1, which any bytes are.
pub fn of_bytes(bytes: Vec<u8>) -> Result<String, NoText> {
    let bytes = if bytes.starts_with(GZIP) { unpacked(&bytes)? } else { bytes };
    if let Some((_, with, unpack)) = PACKED.iter().find(|(first, ..)| bytes.starts_with(first)) {
        return Err(NoText::Packed { with, unpack });
    }
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        String::from_utf16(&units).ok().filter(|_| bytes.len().is_multiple_of(2)).ok_or(NoText::NoUtf16)
    };
    match &bytes[..] {
        // UTF-32 begins as UTF-16 does, and has zeros.
        [0xff, 0xfe, 0, 0, ..] => return Err(NoText::Binary),
        [0xff, 0xfe, rest @ ..] => return utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => return utf16(rest, u16::from_be_bytes),
        _ if bytes.contains(&0) => return Err(NoText::Binary),
        _ => {}
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| error.as_bytes().iter().map(|&byte| char::from(byte)).collect());
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, NoText> {
    let mut text = Vec::new();
    // Several packed files one after the other are one, too.
    let mut reader = flate2::read::MultiGzDecoder::new(bytes).take(MOST_BYTES + 1);
    reader.read_to_end(&mut text).map_err(|error| NoText::Damaged { why: error.to_string() })?;
    if text.len() as u64 > MOST_BYTES {
        return Err(NoText::TooLong);
    }
    Ok(text)
}

/// Lines without their ends, whichever system wrote them: `\n`, `\r\n`, or `\r` where there is no `\n`.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    let end = if text.contains('\n') { '\n' } else { '\r' };
    text.split_terminator(end).map(|line| line.strip_suffix('\r').unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn packed(text: &str) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        writer.write_all(text.as_bytes()).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn text_of_every_origin_is_read_without_its_mark() {
        let utf16 = |unit: fn(u16) -> [u8; 2]| "\u{feff}a,ß\r\n".encode_utf16().flat_map(unit).collect();
        for (bytes, wanted) in [
            (b"a\n".to_vec(), "a\n"),
            (b"\xef\xbb\xbfa,b".to_vec(), "a,b"),
            (b"Universit\xe4t".to_vec(), "Universität"),
            (utf16(u16::to_le_bytes), "a,ß\r\n"),
            (utf16(u16::to_be_bytes), "a,ß\r\n"),
            (packed("; x\n"), "; x\n"),
            ([packed("a\n"), packed("b\n")].concat(), "a\nb\n"),
            (Vec::new(), ""),
        ] {
            assert_eq!(of_bytes(bytes).as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn a_file_that_is_no_text_is_refused_with_a_remedy() {
        let mut cut = packed(&"a line\n".repeat(100));
        cut.truncate(cut.len() - 9);
        for (bytes, wanted) in [
            (b"BZh91AY&SY".to_vec(), "bunzip2 -k FILE"),
            (b"\x28\xb5\x2f\xfd....".to_vec(), "packed with zstd"),
            (b"\xfd7zXZ\0..".to_vec(), "packed with xz"),
            (b"PK\x03\x04..".to_vec(), ".xlsx"),
            (packed("BZh9"), "packed with bzip2"),
            (cut, "damaged or cut off"),
            (b"\xff\xfea".to_vec(), "UTF-16"),
            (b"a\0,\0".to_vec(), "UTF-16"),
            (b"\xff\xfe\0\0a\0\0\0".to_vec(), "UTF-32"),
        ] {
            let message = of_bytes(bytes).unwrap_err().to_string();
            assert!(message.contains(wanted), "{message}");
        }
    }

    #[test]
    fn lines_end_as_on_any_system() {
        for text in ["a\nb\n", "a\r\nb\r\n", "a\rb\r", "a\nb"] {
            assert_eq!(lines(text).collect::<Vec<_>>(), ["a", "b"], "{text:?}");
        }
    }
}
