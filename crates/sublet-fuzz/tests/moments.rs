//! Each target for a moment, and the inputs that failed once.

use std::sync::mpsc;
use std::time::{Duration, Instant};
use sublet_fuzz::{Mutator, TARGETS, Target};

/// How long a target gets inputs; `SUBLET_FUZZ_SECONDS` says otherwise.
const SECONDS: u64 = 2;
/// One input hangs when it is not done by then, on the slowest of machines.
const HANG: Duration = Duration::from_secs(120);

#[test]
fn no_target_fails_or_hangs() {
    let seconds = std::env::var("SUBLET_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(SECONDS);
    for target in TARGETS {
        let (done, heard) = mpsc::channel();
        let worker = std::thread::spawn(move || feed(target, Duration::from_secs(seconds), &done));
        let mut last = Vec::new();
        loop {
            match heard.recv_timeout(HANG) {
                Ok(input) => last = input,
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("{} hangs on {:?}", target.name, String::from_utf8_lossy(&last)),
            }
        }
        assert!(worker.join().is_ok(), "{} fails on {:?}", target.name, String::from_utf8_lossy(&last));
    }
}

/// Says each input before it is used.
fn feed(target: &Target, length: Duration, say: &mpsc::Sender<Vec<u8>>) {
    let begin = Instant::now();
    for seed in target.seeds {
        let _ = say.send(seed.to_vec());
        (target.run)(seed);
    }
    let mut mutator = Mutator::new(u64::from(std::process::id()), target.seeds);
    while begin.elapsed() < length {
        let input = mutator.next_input();
        let _ = say.send(input.clone());
        (target.run)(&input);
    }
}
