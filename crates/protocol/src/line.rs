//! Lines of JSON on a socket that must never block its owner.

use std::io::{self, ErrorKind, Read};

use serde::de::DeserializeOwned;

/// A line longer than this is no message of ours.
const MAX_LINE: usize = 4 << 20;

/// Why a message could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Reading or writing failed, or took too long.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// A line is not JSON, or no message that is known.
    #[error("not a message of coplace: {0}")]
    Json(#[from] serde_json::Error),
    /// More than 4 MiB have come that were not handed out yet.
    #[error("a line of more than {MAX_LINE} bytes is not a message of coplace")]
    TooLong,
}

/// Collects bytes and hands out whole messages.
#[derive(Default)]
pub struct Lines {
    buffer: Vec<u8>,
    scanned: usize,
    ended: bool,
}

impl Lines {
    /// Reads what is there without waiting for more than the first byte. Works on blocking and
    /// non-blocking sockets alike.
    pub fn fill(&mut self, from: &mut impl Read) -> Result<(), LineError> {
        let mut chunk = [0; 16 << 10];
        match from.read(&mut chunk) {
            Ok(0) => self.ended = true,
            Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.ended = true,
            Err(error) => return Err(error.into()),
        }
        if self.buffer.len() > MAX_LINE { Err(LineError::TooLong) } else { Ok(()) }
    }

    /// The next whole message, if one has come.
    pub fn next_message<M: DeserializeOwned>(&mut self) -> Result<Option<M>, LineError> {
        let Some(end) = self.buffer[self.scanned..].iter().position(|&byte| byte == b'\n') else {
            self.scanned = self.buffer.len();
            return Ok(None);
        };
        let end = self.scanned + end;
        let message = serde_json::from_slice(&self.buffer[..end]);
        self.buffer.drain(..=end);
        self.scanned = 0;
        Ok(Some(message?))
    }

    /// Whether the peer will say no more.
    pub fn ended(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_the_bytes_were_cut() {
        let text = b"[1,2]\n[3]\n[4";
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut got: Vec<Vec<u32>> = Vec::new();
            for mut part in [&text[..cut], &text[cut..]] {
                if !part.is_empty() {
                    lines.fill(&mut part).unwrap();
                }
                while let Some(message) = lines.next_message().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, [vec![1, 2], vec![3]]);
            assert!(!lines.ended());
        }
    }

    #[test]
    fn a_line_that_is_not_json_is_refused_and_the_next_is_read() {
        let mut lines = Lines::default();
        lines.fill(&mut &b"hello\n7\n"[..]).unwrap();
        assert!(matches!(lines.next_message::<u32>(), Err(LineError::Json(_))));
        assert_eq!(lines.next_message::<u32>().unwrap(), Some(7));
    }

    #[test]
    fn the_end_of_the_stream_is_noticed() {
        let mut lines = Lines::default();
        lines.fill(&mut &b""[..]).unwrap();
        assert!(lines.ended());
    }
}
