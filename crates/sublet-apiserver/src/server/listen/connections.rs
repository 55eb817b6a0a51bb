//! The open connections of one server: how many, which are idle, which are stuck.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Connections without a request are closed after this, as upstream does.
const IDLE_MAX: Duration = Duration::from_secs(90);
/// A request's headers must be there this long after its first byte; HTTP/2 sees to it itself.
const HEAD_MAX: Duration = Duration::from_secs(30);
/// A client that takes none of what is sent to it is cut after this.
const STALL_MAX: Duration = Duration::from_secs(60);

/// Part of the process's open files that the connections of one server may be.
const FILES_PART: usize = 8;

/// How many connections a server may have: `wanted`, or fewer where the process may open few files.
pub(super) fn most(wanted: usize) -> usize {
    static FILES: OnceLock<Option<usize>> = OnceLock::new();
    let files = FILES.get_or_init(|| files_max(&std::fs::read_to_string("/proc/self/limits").ok()?));
    files.map_or(wanted, |files| wanted.min((files / FILES_PART).max(1)))
}

/// The soft limit of open files, as the kernel shows limits.
fn files_max(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// All connections of a server.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    began: Instant,
    /// Guards the map alone.
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    /// Told when one has ended.
    ended: Notify,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Connection {
    began: Instant,
    requests: AtomicUsize,
    /// Since when parts of answers wait to be taken, by request; held for moves of a word.
    waiting: Mutex<HashMap<u64, u64>>,
    next: AtomicU64,
    /// When the last request ended, or it was opened.
    idle_since_ms: AtomicU64,
    /// Since when the headers of a request arrive; zero: none do.
    head_since_ms: AtomicU64,
    /// Bytes that arrive are no sign of a request: it speaks HTTP/2.
    has_streams: AtomicBool,
    /// Since when a write waits for the client; zero: none does.
    stalled_since_ms: AtomicU64,
    /// Asks it to end when its requests are done.
    pub close: CancellationToken,
    /// Ends it at once.
    pub cut: CancellationToken,
}

/// A place among the open connections.
pub(super) struct Slot {
    connections: Arc<Connections>,
    number: u64,
    pub connection: Arc<Connection>,
}

impl Connections {
    pub fn new(most: usize) -> Arc<Self> {
        let (open, next, ended) = (Mutex::default(), AtomicU64::new(0), Notify::new());
        Arc::new(Self { most, began: Instant::now(), open, next, ended })
    }

    /// A place for a new connection. When there is none the longest idle one goes; `None`: all are at work.
    pub fn admit(self: &Arc<Self>) -> Option<Slot> {
        let connection = Arc::new(Connection::new(self.began));
        let mut open = self.open();
        if open.len() >= self.most {
            let idle = open.iter().filter(|(_, c)| c.is_idle()).min_by_key(|(_, c)| c.idle_since_ms.load(Ordering::Relaxed));
            let number = idle.map(|(number, _)| *number)?;
            if let Some(idle) = open.remove(&number) {
                idle.cut.cancel();
            }
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        open.insert(number, connection.clone());
        Some(Slot { connections: self.clone(), number, connection })
    }

    /// Closes what is idle for long, and cuts what is stuck.
    pub fn sweep(&self) {
        let now_ms = ms_since(self.began);
        let is_past = |since_ms: u64, most: Duration| u128::from(now_ms.saturating_sub(since_ms)) > most.as_millis();
        for connection in self.open().values() {
            let head = connection.head_since_ms();
            if connection.stalled_since_ms().is_some_and(|since| is_past(since, STALL_MAX))
                || head.is_some_and(|since| is_past(since, HEAD_MAX))
            {
                connection.cut.cancel();
            } else if connection.is_idle() && is_past(connection.idle_since_ms.load(Ordering::Relaxed), IDLE_MAX) {
                connection.close.cancel();
            }
        }
    }

    /// Asks all to end, and waits until they have.
    pub async fn close_all(&self) {
        loop {
            let ended = self.ended.notified();
            let mut ended = std::pin::pin!(ended);
            ended.as_mut().enable();
            {
                let open = self.open();
                if open.is_empty() {
                    return;
                }
                open.values().for_each(|c| c.close.cancel());
            }
            ended.await;
        }
    }

    pub fn count(&self) -> usize {
        self.open().len()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.open().remove(&self.number);
        self.connections.ended.notify_waiters();
    }
}

impl Connection {
    fn new(began: Instant) -> Self {
        Self {
            began,
            requests: AtomicUsize::new(0),
            waiting: Mutex::default(),
            next: AtomicU64::new(0),
            idle_since_ms: AtomicU64::new(ms_since(began)),
            head_since_ms: AtomicU64::new(0),
            has_streams: AtomicBool::new(false),
            stalled_since_ms: AtomicU64::new(0),
            close: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }

    /// Whether several requests are under way.
    pub fn has_several(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 1
    }

    /// Counts a request until what is returned is dropped.
    pub fn request(self: &Arc<Self>) -> Request {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.head_since_ms.store(0, Ordering::Relaxed);
        Request { of: self.clone(), number: self.next.fetch_add(1, Ordering::Relaxed), waits: false }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when something waits for the client: the socket, or a part of an answer for which a stream has no room.
    fn stalled_since_ms(&self) -> Option<u64> {
        let socket = Some(self.stalled_since_ms.load(Ordering::Relaxed)).filter(|since| *since > 0);
        socket.into_iter().chain(self.waiting().values().copied()).min()
    }

    fn head_since_ms(&self) -> Option<u64> {
        Some(self.head_since_ms.load(Ordering::Relaxed)).filter(|since| *since > 0 && self.is_idle())
    }

    /// Bytes arrived.
    pub fn read(&self) {
        let starts = self.is_idle() && !self.has_streams.load(Ordering::Relaxed) && self.head_since_ms.load(Ordering::Relaxed) == 0;
        if starts {
            self.head_since_ms.store(ms_since(self.began).max(1), Ordering::Relaxed);
        }
    }

    /// Hands were shaken: what arrives from now on are requests.
    pub fn speaks(&self, has_streams: bool) {
        self.has_streams.store(has_streams, Ordering::Relaxed);
        self.head_since_ms.store(0, Ordering::Relaxed);
    }

    /// A write was taken, or has to wait.
    pub fn wrote(&self, waits: bool) {
        let since = if waits { ms_since(self.began).max(1) } else { 0 };
        if !waits || self.stalled_since_ms.load(Ordering::Relaxed) == 0 {
            self.stalled_since_ms.store(since, Ordering::Relaxed);
        }
    }
}

/// A request under way, its answer included.
pub(super) struct Request {
    of: Arc<Connection>,
    number: u64,
    waits: bool,
}

impl Request {
    /// A part of the answer was handed over, or there is none just now. It is taken when the next one is asked for.
    pub fn handed_over(&mut self, waits: bool) {
        if waits {
            self.of.waiting().insert(self.number, ms_since(self.of.began));
        } else if self.waits {
            self.of.waiting().remove(&self.number);
        }
        self.waits = waits;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.handed_over(false);
        self.of.idle_since_ms.store(ms_since(self.of.began), Ordering::Relaxed);
        self.of.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

fn ms_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_how_many_files() {
        let shown = "Limit                     Soft Limit           Hard Limit           Units     \nMax processes             unlimited            unlimited            processes \nMax open files            1024                 524288               files     \n";
        assert_eq!(files_max(shown), Some(1024));
        assert_eq!(files_max("Max open files            unlimited            unlimited            files"), None);
    }

    #[test]
    fn the_longest_idle_connection_makes_room() {
        let all = Connections::new(2);
        let (first, second) = (all.admit().unwrap(), all.admit().unwrap());
        let busy = first.connection.request();
        let third = all.admit().unwrap();
        assert!(second.connection.cut.is_cancelled() && !first.connection.cut.is_cancelled());
        drop(second);
        assert_eq!(all.count(), 2);
        let also_busy = third.connection.request();
        assert!(all.admit().is_none(), "both work");
        drop(busy);
        assert!(all.admit().is_some());
        assert!(first.connection.cut.is_cancelled());
        drop(also_busy);
    }

    #[test]
    fn what_is_idle_or_stuck_goes() {
        let all = Connections::new(9);
        let [fresh, idle, busy, stuck] = [(); 4].map(|()| all.admit().unwrap());
        // Long ago, as the clock of these counts.
        let aged =
            Connections { began: Instant::now().checked_sub(Duration::from_secs(1000)).unwrap(), ..Connections::default_for_tests(&all) };
        for slot in [&fresh, &busy] {
            slot.connection.idle_since_ms.store(ms_since(aged.began) - 10, Ordering::Relaxed);
        }
        stuck.connection.idle_since_ms.store(ms_since(aged.began) - 10, Ordering::Relaxed);
        stuck.connection.stalled_since_ms.store(1, Ordering::Relaxed);
        busy.connection.idle_since_ms.store(0, Ordering::Relaxed);
        let _request = busy.connection.request();
        aged.sweep();
        assert_eq!([&fresh, &idle, &busy, &stuck].map(|s| s.connection.close.is_cancelled()), [false, true, false, false]);
        assert_eq!([&fresh, &idle, &busy, &stuck].map(|s| s.connection.cut.is_cancelled()), [false, false, false, true]);
    }

    /// Headers that never end were once told from silence by a clock that ran in both: clients that kept a connection
    /// for 30 seconds without a request lost the next one.
    #[test]
    fn silence_is_no_slow_request() {
        let connection = Arc::new(Connection::new(Instant::now()));
        connection.read();
        connection.speaks(false);
        assert_eq!(connection.head_since_ms(), None, "hands were shaken");
        connection.read();
        let since = connection.head_since_ms();
        connection.read();
        assert!(since.is_some() && connection.head_since_ms() == since);
        let request = connection.request();
        connection.read();
        drop(request);
        assert_eq!(connection.head_since_ms(), None, "a body is no header");
        connection.speaks(true);
        connection.read();
        assert_eq!(connection.head_since_ms(), None, "pings");
    }

    #[test]
    fn a_write_that_goes_on_is_not_stuck() {
        let connection = Connection::new(Instant::now());
        connection.wrote(true);
        let since = connection.stalled_since_ms();
        connection.wrote(true);
        assert!(since.is_some() && connection.stalled_since_ms() == since);
        connection.wrote(false);
        assert_eq!(connection.stalled_since_ms(), None);
    }

    /// A client of HTTP/2 may read its socket and give a stream no room: the socket is never stuck.
    #[test]
    fn a_stream_without_room_is_stuck() {
        let connection = Arc::new(Connection::new(Instant::now()));
        let mut watch = connection.request();
        assert_eq!(connection.stalled_since_ms(), None);
        watch.handed_over(true);
        assert!(connection.stalled_since_ms().is_some());
        watch.handed_over(false);
        assert_eq!(connection.stalled_since_ms(), None, "it has seen all there is");
        watch.handed_over(true);
        drop(watch);
        assert_eq!(connection.stalled_since_ms(), None);
    }

    impl Connections {
        /// The same connections under another clock.
        fn default_for_tests(other: &Self) -> Self {
            let (open, next, ended) = (Mutex::new(other.open().clone()), AtomicU64::new(0), Notify::new());
            Self { most: other.most, began: other.began, open, next, ended }
        }
    }
}
