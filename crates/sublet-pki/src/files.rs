//! Reading and writing PEM files, private ones for the owner's eyes alone.

use crate::{CertifiedKey, PkiError};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> PkiError {
    move |source| PkiError::File { path: path.display().to_string(), source }
}

/// Makes the folder, for its owner alone.
pub(crate) fn make_folder(dir: &Path) -> Result<(), PkiError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed(dir))
}

pub(crate) fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path)(error)),
    }
}

pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), PkiError> {
    write(path, text, PRIVATE)
}

pub(crate) fn write_public(path: &Path, text: &str) -> Result<(), PkiError> {
    write(path, text, PUBLIC)
}

/// The file has its mode and all its contents before it has its name.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), PkiError> {
    let unfinished = path.with_extension("new");
    let _ = fs::remove_file(&unfinished);
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(&unfinished).map_err(failed(&unfinished))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed(&unfinished))?;
    fs::rename(&unfinished, path).map_err(failed(path))
}

/// `NAME.crt` and `NAME.key` in a folder.
pub(crate) struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

impl Pair {
    pub fn new(dir: &Path, name: &str) -> Self {
        Self { certificate: dir.join(format!("{name}.crt")), key: dir.join(format!("{name}.key")) }
    }

    /// Both files, or none of them.
    pub fn read(&self) -> Result<Option<CertifiedKey>, PkiError> {
        let incomplete = |present: &Path, missing: &Path| PkiError::Incomplete {
            present: present.display().to_string(),
            missing: missing.display().to_string(),
        };
        match (read(&self.certificate)?, read(&self.key)?) {
            (Some(certificate_pem), Some(key_pem)) => Ok(Some(CertifiedKey { certificate_pem, key_pem })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(incomplete(&self.certificate, &self.key)),
            // Keys are written first: a key alone is what a crash leaves, and nobody has seen it yet.
            (None, Some(_)) => Ok(None),
        }
    }

    pub fn write(&self, certified: &CertifiedKey) -> Result<(), PkiError> {
        // A certificate beside a key that is not its own would be taken for a pair.
        match fs::remove_file(&self.certificate) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(&self.certificate)(error)),
            _ => {}
        }
        write_private(&self.key, &certified.key_pem)?;
        write_public(&self.certificate, &certified.certificate_pem)
    }
}
