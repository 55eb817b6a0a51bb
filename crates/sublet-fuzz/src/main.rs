//! Runs targets for as long as one likes: `cargo run --release -p sublet-fuzz -- request --seconds 300`.

use anyhow::{Context as _, Result};
use clap::Parser;
use std::time::{Duration, Instant};
use sublet_fuzz::{Mutator, TARGETS, target};

/// An input that takes longer than this is told of.
const SLOW: Duration = Duration::from_secs(1);

#[derive(Parser)]
struct Arguments {
    /// The target; all by turns when none is named
    target: Option<String>,
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Decides the inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs the bytes of this file instead, once
    #[arg(long)]
    input: Option<std::path::PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let chosen = match &arguments.target {
        Some(name) => vec![target(name).with_context(|| format!("there is no target {name:?}"))?],
        None => TARGETS.iter().collect(),
    };
    for target in chosen {
        if let Some(path) = &arguments.input {
            (target.run)(&std::fs::read(path)?);
            continue;
        }
        let mut mutator = Mutator::new(arguments.seed, target.seeds);
        let (begin, mut count, mut slowest, mut found) = (Instant::now(), 0_u64, Duration::ZERO, 0);
        while begin.elapsed() < Duration::from_secs(arguments.seconds) {
            let input = mutator.next_input();
            let one = Instant::now();
            let is_fine = std::panic::catch_unwind(|| (target.run)(&input)).is_ok();
            let took = one.elapsed();
            slowest = slowest.max(took);
            count += 1;
            if !is_fine || took > SLOW {
                let path = std::env::temp_dir().join(format!("sublet-fuzz-{}-{}-{count}", target.name, arguments.seed));
                std::fs::write(&path, &input)?;
                println!("{}: {} in {took:?}: {}", target.name, if is_fine { "slow" } else { "failed" }, path.display());
                found += 1;
            }
        }
        println!("{}: {count} inputs, the slowest took {slowest:?}, {found} findings", target.name);
    }
    Ok(())
}
