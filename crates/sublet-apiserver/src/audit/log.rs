//! Where events go: a file or standard output, written by one task, from a queue with a bound.

use super::file::RotatingFile;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Events that wait to be written, in bytes. The channel itself has no bound; each line in it holds its share of this.
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// Lines that are written at once.
const BATCH_LINES_MAX: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    pub target: LogTarget,
    pub mode: LogMode,
    /// A file of this size is set aside.
    pub bytes_max: u64,
    /// How many files that were set aside are kept; 0: all of them.
    pub backups_max: usize,
    pub age_max: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    Stdout,
    File(PathBuf),
}

/// What happens when events come faster than they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// Requests wait.
    Blocking,
    /// Events are lost, and counted.
    Batch,
}

pub(super) struct Log {
    lines: UnboundedSender<Line>,
    room: Arc<Semaphore>,
    mode: LogMode,
    lost: Arc<AtomicU64>,
    stop: CancellationToken,
    /// Taken by whoever closes the log.
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct Line {
    text: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

enum Target {
    Stdout,
    File(RotatingFile),
}

impl Log {
    pub(super) fn open(config: LogConfig) -> io::Result<Self> {
        let target = match &config.target {
            LogTarget::Stdout => Target::Stdout,
            LogTarget::File(path) => Target::File(RotatingFile::open(path, &config)?),
        };
        let (lines, queue) = unbounded_channel();
        let (stop, lost) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
        let writer = tokio::spawn(write(target, queue, stop.clone(), lost.clone()));
        let room = Arc::new(Semaphore::new(QUEUE_BYTES_MAX));
        Ok(Self { lines, room, mode: config.mode, lost, stop, writer: Mutex::new(Some(writer)) })
    }

    /// Events that were not written.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) async fn send(&self, text: Vec<u8>) {
        if self.mode == LogMode::Batch {
            return self.send_now(text);
        }
        let room = self.room.clone().acquire_many_owned(share(&text)).await.expect("the semaphore is never closed");
        self.queue(text, room);
    }

    /// For those who cannot wait.
    pub(super) fn send_now(&self, text: Vec<u8>) {
        match self.room.clone().try_acquire_many_owned(share(&text)) {
            Ok(room) => self.queue(text, room),
            Err(_) => _ = self.lost.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn queue(&self, text: Vec<u8>, room: OwnedSemaphorePermit) {
        if self.lines.send(Line { text, _room: room }).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) async fn close(&self) {
        self.stop.cancel();
        let writer = self.writer.lock().expect("no holder of this lock panics").take();
        if let Some(writer) = writer
            && let Err(error) = writer.await
        {
            tracing::error!(%error, "the writer of the audit log ended badly");
        }
    }
}

fn share(text: &[u8]) -> u32 {
    u32::try_from(text.len().min(QUEUE_BYTES_MAX)).expect("the bound is below 4 GiB")
}

/// Writes until told to stop, and then what is still waiting.
async fn write(mut target: Target, mut queue: UnboundedReceiver<Line>, stop: CancellationToken, lost: Arc<AtomicU64>) {
    let mut works = true;
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            biased;
            received = queue.recv_many(&mut batch, BATCH_LINES_MAX) => if received == 0 { return },
            () = stop.cancelled() => return,
        }
        let count = batch.len() as u64;
        let written = tokio::task::spawn_blocking(move || {
            let result = target.write(&batch);
            (target, result)
        });
        let result;
        (target, result) = match written.await {
            Ok(written) => written,
            Err(error) => return tracing::error!(%error, "writing the audit log panicked"),
        };
        match result {
            Ok(()) => works = true,
            Err(error) => {
                lost.fetch_add(count, Ordering::Relaxed);
                if std::mem::take(&mut works) {
                    tracing::error!(%error, "the audit log cannot be written");
                }
            }
        }
    }
}

impl Target {
    fn write(&mut self, batch: &[Line]) -> io::Result<()> {
        let lines = batch.iter().map(|line| line.text.as_slice());
        match self {
            Self::File(file) => file.write(lines),
            Self::Stdout => {
                // Whole lines at once: others write to the same place.
                let together: Vec<u8> = lines.flatten().copied().collect();
                io::stdout().lock().write_all(&together)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(path: PathBuf, mode: LogMode) -> LogConfig {
        LogConfig { target: LogTarget::File(path), mode, bytes_max: u64::MAX, backups_max: 0, age_max: None }
    }

    #[tokio::test]
    async fn what_waits_is_written_at_the_end() {
        let path = std::env::temp_dir().join(format!("sublet-audit-{}.log", uuid::Uuid::new_v4()));
        let log = Log::open(config(path.clone(), LogMode::Blocking)).unwrap();
        for number in 0..2000 {
            log.send(format!("{number}\n").into_bytes()).await;
        }
        log.close().await;
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!((text.lines().count(), text.lines().last()), (2000, Some("1999")));
        log.send(b"too late\n".to_vec()).await;
        assert_eq!(log.lost(), 1);
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn events_beyond_the_bound_are_lost_and_counted() {
        let path = std::env::temp_dir().join(format!("sublet-audit-{}.log", uuid::Uuid::new_v4()));
        let log = Log::open(config(path.clone(), LogMode::Batch)).unwrap();
        log.send(vec![b'x'; QUEUE_BYTES_MAX]).await;
        log.send(b"no room\n".to_vec()).await;
        assert_eq!(log.lost(), 1);
        log.close().await;
        std::fs::remove_file(path).unwrap();
    }
}
