//! Where a journal and its stores are: a folder, and for tests a disk that loses power.

use crate::backend::StorageError;
use crate::embedded::file::{self, File, Mark};
use std::any::Any;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// What the files of a journal mean; rises when an older program would lose writes in them.
const FORMAT: &str = "1\n";
const FORMAT_FILE: &str = "format";
const SEGMENT_FILES: [&str; 2] = ["0", "1"];

/// Writes of a store that its file could not take, beside that file.
const UNSAVED_SUFFIX: &str = ".unsaved";

/// Zeros that are written ahead of the frames. What lies within a file is made durable by one write of the disk; what makes it longer
/// takes another one for its length, and on most file systems a commit of theirs.
const AHEAD_BYTES: u64 = 256 << 10;

/// One of the two files of a journal.
pub(in crate::embedded) trait Segment: Send {
    fn read(&mut self) -> io::Result<Vec<u8>>;
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
    fn empty(&mut self) -> io::Result<()>;
}

pub(in crate::embedded) trait Volume: Send + Sync + 'static {
    /// Takes the journal for this process, for as long as the value lives.
    fn lock(&self) -> Result<Box<dyn Any + Send>, StorageError>;
    fn segments(&self) -> Result<[Box<dyn Segment>; 2], StorageError>;
    /// Opens a store; makes it, marked, when it is missing and a mark is given.
    fn open_store(&self, path: &Path, cache_bytes: usize, make: Option<&Mark>) -> Result<Option<File>, StorageError>;
    fn read_unsaved(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Replaces what is kept beside a store, durably; `None` removes it.
    fn write_unsaved(&self, path: &Path, bytes: Option<&[u8]>) -> io::Result<()>;
    /// How the journal names a store: the way from the one to the other stays when both move together.
    fn name_of(&self, path: &Path) -> String;
    fn path_of(&self, name: &str) -> PathBuf;
    /// How a store names the journal.
    fn seen_from(&self, path: &Path) -> String;
    /// The volume of the journal that a store names, when it is another one than this.
    fn other(&self, path: &Path, seen: &str) -> Result<Option<Box<dyn Volume>>, StorageError>;
}

/// Files in a folder of their own.
pub(in crate::embedded) struct Folder {
    dir: PathBuf,
}

impl Folder {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }
}

impl Volume for Folder {
    fn lock(&self) -> Result<Box<dyn Any + Send>, StorageError> {
        let failed = |error: io::Error| StorageError::Failed(format!("cannot open {}: {}", self.dir.display(), file::io_text(&error)));
        std::fs::create_dir_all(&self.dir).map_err(failed)?;
        let path = self.dir.join(FORMAT_FILE);
        let lock = file::open_file(&path).map_err(failed)?;
        lock.try_lock()
            .map_err(|_| StorageError::Failed(format!("{} is in use by another process: stop that one first", self.dir.display())))?;
        match std::fs::read_to_string(&path).map_err(failed)?.as_str() {
            FORMAT => {}
            "" => {
                lock.write_at(FORMAT.as_bytes(), 0).and_then(|_| lock.sync_all()).map_err(failed)?;
                file::sync_parent(&path);
                file::sync_parent(&self.dir);
            }
            other => {
                return Err(StorageError::Failed(format!(
                    "{} has format {} and this program understands format {}: use the version that wrote it",
                    self.dir.display(),
                    other.trim(),
                    FORMAT.trim()
                )));
            }
        }
        Ok(Box::new(lock))
    }

    fn segments(&self) -> Result<[Box<dyn Segment>; 2], StorageError> {
        let open = |name: &str| -> Result<Box<dyn Segment>, StorageError> {
            let path = self.dir.join(name);
            let failed = |error: io::Error| StorageError::Failed(format!("cannot open {}: {}", path.display(), file::io_text(&error)));
            let file = file::open_file(&path).map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len();
            Ok(Box::new(SegmentFile { file, length }))
        };
        let segments = [open(SEGMENT_FILES[0])?, open(SEGMENT_FILES[1])?];
        file::sync_parent(&self.dir.join(SEGMENT_FILES[0]));
        Ok(segments)
    }

    fn open_store(&self, path: &Path, cache_bytes: usize, make: Option<&Mark>) -> Result<Option<File>, StorageError> {
        if make.is_none() && !path.exists() {
            return Ok(None);
        }
        File::open(path, cache_bytes, make).map(Some)
    }

    fn read_unsaved(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(unsaved(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    fn write_unsaved(&self, path: &Path, bytes: Option<&[u8]>) -> io::Result<()> {
        let path = unsaved(path);
        match bytes {
            Some(bytes) => {
                let unfinished = with_suffix(&path, ".new");
                std::fs::write(&unfinished, bytes)?;
                std::fs::File::open(&unfinished)?.sync_all()?;
                std::fs::rename(&unfinished, &path)?;
            }
            None => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
        }
        file::sync_parent(&path);
        Ok(())
    }

    fn name_of(&self, path: &Path) -> String {
        relative(&self.dir, path)
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn seen_from(&self, path: &Path) -> String {
        relative(parent(path), &self.dir)
    }

    fn other(&self, path: &Path, seen: &str) -> Result<Option<Box<dyn Volume>>, StorageError> {
        let dir = parent(path).join(seen);
        let there = dir.canonicalize().ok().filter(|_| dir.join(FORMAT_FILE).exists());
        let Some(dir) = there else {
            return Err(StorageError::Failed(format!(
                "the last writes of {} are in {}, which is missing: put it back, or restore a snapshot",
                path.display(),
                dir.display()
            )));
        };
        let own = self.dir.canonicalize().ok();
        Ok((own.as_ref() != Some(&dir)).then(|| Box::new(Self { dir }) as Box<dyn Volume>))
    }
}

struct SegmentFile {
    file: std::fs::File,
    length: u64,
}

impl Segment for SegmentFile {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.file.metadata()?.len()).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        let end = offset + bytes.len() as u64;
        if end > self.length {
            // Without room for more than the frame, the frame is there all the same.
            let ahead = self.file.write_all_at(&vec![0; AHEAD_BYTES as usize], end);
            self.length = end + if ahead.is_ok() { AHEAD_BYTES } else { 0 };
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn empty(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.length = 0;
        self.file.sync_data()
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn unsaved(path: &Path) -> PathBuf {
    with_suffix(path, UNSAVED_SUFFIX)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The way from a folder to a path; the path alone when there is none.
fn relative(from: &Path, to: &Path) -> String {
    let absolute = |path: &Path| match (path.canonicalize(), parent(path).canonicalize(), path.file_name()) {
        (Ok(path), _, _) => path,
        // It will be there soon.
        (Err(_), Ok(parent), Some(name)) => parent.join(name),
        _ => path.to_path_buf(),
    };
    let (from, to) = (absolute(from), absolute(to));
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| Path::new(".."));
    let down = to.components().skip(shared).map(|c| Path::new(c.as_os_str()));
    up.chain(down).collect::<PathBuf>().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_and_stores_name_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("journal"));
        let store = dir.path().join("tenants/a/store");
        for path in [&folder.dir, &parent(&store).to_path_buf()] {
            std::fs::create_dir_all(path).unwrap();
        }
        assert_eq!(folder.name_of(&store), "../tenants/a/store");
        assert_eq!(folder.seen_from(&store), "../../journal");
        let Err(missing) = folder.other(&store, "../../journal") else { panic!("nothing is there") };
        assert!(missing.to_string().contains("is missing"), "{missing}");
        let _lock = folder.lock().unwrap();
        assert!(folder.other(&store, "../../journal").unwrap().is_none());
        assert!(folder.lock().is_err_and(|e| e.to_string().contains("in use by another process")));
    }

    #[test]
    fn a_frame_makes_its_file_longer_than_it_is_once_for_many() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("journal"));
        let _lock = folder.lock().unwrap();
        let [mut segment, _] = folder.segments().unwrap();
        let length = || std::fs::metadata(dir.path().join("journal/0")).unwrap().len();
        let mut end = 0;
        let mut lengths = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            segment.write_at(end, &[7; 600]).unwrap();
            end += 600;
            lengths.insert(length());
        }
        assert!(lengths.len() < 5 && length() >= end, "{lengths:?}");
        let bytes = segment.read().unwrap();
        let (frames, ahead) = bytes.split_at(end as usize);
        assert!(frames.iter().all(|b| *b == 7) && ahead.iter().all(|b| *b == 0));
        // What was there is kept by a program that opens it.
        let [mut again, _] = folder.segments().unwrap();
        again.write_at(0, &[8; 600]).unwrap();
        assert_eq!((length(), again.read().unwrap()[600]), (bytes.len() as u64, 7));
        again.empty().unwrap();
        assert_eq!(length(), 0);
        again.write_at(0, &[9]).unwrap();
        assert_eq!(again.read().unwrap()[..2], [9, 0]);
    }
}
