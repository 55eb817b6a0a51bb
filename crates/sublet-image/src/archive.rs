//! Tar archives that depend on their contents alone.

use anyhow::Result;
use std::path::Path;
use tar::{Builder, EntryType, Header};

/// What goes into an archive, in this order.
#[derive(Clone, Copy)]
pub enum Entry<'a> {
    File { path: &'a str, mode: u32, bytes: &'a [u8] },
    Folder { path: &'a str, mode: u32 },
}

/// The bytes of an archive whose entries belong to root and were made at the beginning of time.
pub fn write(entries: &[Entry<'_>]) -> Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for entry in entries {
        let (path, mode, bytes, kind) = match *entry {
            Entry::File { path, mode, bytes } => (path, mode, bytes, EntryType::Regular),
            Entry::Folder { path, mode } => (path, mode, &[][..], EntryType::Directory),
        };
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_path(Path::new(path))?;
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        builder.append(&header, bytes)?;
    }
    Ok(builder.into_inner()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn an_archive_reads_as_it_was_written() {
        let bytes =
            write(&[Entry::Folder { path: "tmp/", mode: 0o1777 }, Entry::File { path: "a/b", mode: 0o755, bytes: b"hello" }]).unwrap();
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            let header = entry.header();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap()), (0, 0));
            seen.push((entry.path().unwrap().display().to_string(), header.mode().unwrap(), text));
        }
        assert_eq!(seen, [("tmp/".into(), 0o1777, String::new()), ("a/b".into(), 0o755, "hello".into())]);
    }
}
