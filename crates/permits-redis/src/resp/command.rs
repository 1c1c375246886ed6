//! A command: an array of words.

use std::io::Write as _;

/// A command. Not `Debug`, because a word may be a password.
#[derive(Clone)]
pub(crate) struct Cmd {
    /// All words, one after the other.
    bytes: Vec<u8>,
    /// The end of each word in `bytes`.
    ends: Vec<usize>,
}

/// The command `name`, without arguments.
pub(crate) fn cmd(name: &str) -> Cmd {
    let mut cmd = Cmd { bytes: Vec::new(), ends: Vec::new() };
    cmd.arg(name);
    cmd
}

impl Cmd {
    /// Appends an argument.
    pub(crate) fn arg(&mut self, word: impl Word) -> &mut Self {
        word.append(&mut self.bytes);
        self.ends.push(self.bytes.len());
        self
    }

    /// Appends several arguments.
    pub(crate) fn args(&mut self, words: impl IntoIterator<Item = impl Word>) -> &mut Self {
        for word in words {
            self.arg(word);
        }
        self
    }

    /// The name and the arguments.
    pub(crate) fn words(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.bytes[std::mem::replace(&mut start, *end)..*end])
    }

    /// Appends the command to `out` as the server reads it.
    pub(crate) fn pack(&self, out: &mut Vec<u8>) {
        // Most words are shorter than 100 bytes, and need six bytes around them.
        out.reserve(self.bytes.len() + 8 * (self.ends.len() + 1));
        pack_length(b'*', self.ends.len(), out);
        for word in self.words() {
            pack_length(b'$', word.len(), out);
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
    }
}

fn pack_length(mark: u8, length: usize, out: &mut Vec<u8>) {
    out.push(mark);
    length.append(out);
    out.extend_from_slice(b"\r\n");
}

/// A word of a command: text, bytes, or a number in decimal digits.
pub(crate) trait Word {
    /// Appends the word to `bytes`.
    fn append(&self, bytes: &mut Vec<u8>);
}

impl<T: Word + ?Sized> Word for &T {
    fn append(&self, bytes: &mut Vec<u8>) {
        (**self).append(bytes);
    }
}

impl Word for [u8] {
    fn append(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }
}

impl Word for Vec<u8> {
    fn append(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }
}

impl Word for str {
    fn append(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.as_bytes());
    }
}

impl Word for String {
    fn append(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.as_bytes());
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Word for $number {
            fn append(&self, bytes: &mut Vec<u8>) {
                write!(bytes, "{self}").expect("memory takes all bytes");
            }
        }
    )*};
}
numbers!(u8, u32, i32, u64, i64, usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_packed_with_their_lengths() {
        let mut command = cmd("EVAL");
        command.arg("return 1").arg(0).arg(-7_i64).arg(vec![0xff, b'\r', b'\n']).arg("");
        let mut packed = b"before".to_vec();
        command.pack(&mut packed);
        let expected = b"before*6\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n0\r\n$2\r\n-7\r\n$3\r\n\xff\r\n\r\n$0\r\n\r\n";
        assert_eq!(packed, expected);
        let words: Vec<&[u8]> = command.words().collect();
        assert_eq!(words, [&b"EVAL"[..], b"return 1", b"0", b"-7", b"\xff\r\n", b""]);
    }
}
