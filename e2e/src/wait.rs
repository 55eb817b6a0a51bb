//! Waiting for something to become true, with a deadline.

use anyhow::{Result, bail};
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

const POLL: Duration = Duration::from_millis(40);

/// Asks until there is an answer. `Err` of the question ends the wait at once; `Ok(Err(why))` says
/// what is still missing.
pub async fn eventually<T, F, Fut>(what: &str, seconds: u64, mut question: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<std::result::Result<T, String>>>,
{
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        match question().await? {
            Ok(answer) => return Ok(answer),
            Err(missing) if Instant::now() >= deadline => bail!("{what}: not after {seconds}s: {missing}"),
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}
