//! A file that is set aside when it has grown, as upstream's log does it.

use super::log::LogConfig;
use jiff::Timestamp;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Names of files that were set aside end in the time: `audit-2026-11-30T21-07-44.123.log`.
const TIME: &str = "%Y-%m-%dT%H-%M-%S.%3f";

pub(super) struct RotatingFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    backups_max: usize,
    age_max: Option<Duration>,
}

impl RotatingFile {
    pub(super) fn open(path: &Path, config: &LogConfig) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        let LogConfig { bytes_max, backups_max, age_max, .. } = *config;
        Ok(Self { path: path.to_path_buf(), file, bytes, bytes_max, backups_max, age_max })
    }

    /// Lines stay whole: a file is set aside between two of them.
    pub(super) fn write<'l>(&mut self, lines: impl Iterator<Item = &'l [u8]>) -> io::Result<()> {
        let mut together = Vec::new();
        for line in lines {
            if self.bytes > 0 && self.bytes + line.len() as u64 > self.bytes_max {
                self.file.write_all(&together)?;
                together.clear();
                self.rotate()?;
            }
            self.bytes += line.len() as u64;
            together.extend_from_slice(line);
        }
        self.file.write_all(&together)
    }

    fn rotate(&mut self) -> io::Result<()> {
        let (stem, extension) = self.name_parts();
        let aside = self.path.with_file_name(format!("{stem}-{}{extension}", Timestamp::now().strftime(TIME)));
        if !aside.exists() {
            fs::rename(&self.path, &aside)?;
            self.file = open(&self.path)?;
            self.bytes = 0;
            self.forget_old()?;
        }
        Ok(())
    }

    /// Name and extension with its dot.
    fn name_parts(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| part.map(|p| p.to_string_lossy().into_owned());
        let extension = text(self.path.extension()).map(|e| format!(".{e}")).unwrap_or_default();
        (text(self.path.file_stem()).unwrap_or_default(), extension)
    }

    /// Removes what was set aside and is too old or too much.
    fn forget_old(&self) -> io::Result<()> {
        let (stem, extension) = self.name_parts();
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let is_ours = |name: &str| {
            let time = name.strip_prefix(&format!("{stem}-")).and_then(|rest| rest.strip_suffix(extension.as_str()));
            time.is_some_and(|time| jiff::civil::DateTime::strptime("%Y-%m-%dT%H-%M-%S.%f", time).is_ok())
        };
        let mut aside: Vec<PathBuf> = fs::read_dir(folder)?
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_str().is_some_and(is_ours))
            .map(|entry| entry.path())
            .collect();
        // Times in names sort as texts do.
        aside.sort_unstable_by(|a, b| b.cmp(a));
        for (index, path) in aside.iter().enumerate() {
            let age = fs::metadata(path)?.modified().ok().and_then(|m| SystemTime::now().duration_since(m).ok());
            let too_old = self.age_max.zip(age).is_some_and(|(max, age)| age > max);
            if too_old || self.backups_max > 0 && index >= self.backups_max {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// What is in it is for its owner alone.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::super::log::{LogMode, LogTarget};
    use super::*;

    #[test]
    fn a_file_that_has_grown_is_set_aside_and_few_are_kept() {
        let folder = std::env::temp_dir().join(format!("sublet-audit-{}", uuid::Uuid::new_v4()));
        let path = folder.join("audit.log");
        let config = LogConfig { bytes_max: 10, backups_max: 2, age_max: None, mode: LogMode::Batch, target: LogTarget::Stdout };
        let mut file = RotatingFile::open(&path, &config).unwrap();
        for round in 0..5 {
            file.write([format!("line {round}\n").as_bytes()].into_iter()).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "line 4\n");
        let mut kept: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| *p != path)
            .map(|p| fs::read_to_string(p).unwrap())
            .collect();
        kept.sort();
        assert_eq!(kept, ["line 2\n", "line 3\n"]);
        fs::remove_dir_all(folder).unwrap();
    }
}
