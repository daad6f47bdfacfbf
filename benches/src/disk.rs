//! What the disk itself can do: 4 KiB writes, each followed by `fdatasync`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Result;

const BLOCK: usize = 4096;
const RECYCLED_BLOCKS: u64 = 4096;

/// Syncs a second, appending to a growing file and overwriting one whose blocks have been written before.
#[derive(Clone, Copy, Debug)]
pub struct Syncs {
    /// Appending.
    pub append: f64,
    /// Overwriting.
    pub overwrite: f64,
}

/// Measures both in `directory`, each for `duration`.
///
/// # Errors
/// When the disk refuses.
pub fn measure(directory: &Path, duration: Duration) -> Result<Syncs> {
    let path = directory.join("sync-probe");
    let file = File::create_new(&path)?;
    let append = syncs(&file, duration, |turn| turn)?;
    for block in 0..RECYCLED_BLOCKS {
        file.write_all_at(&[1; BLOCK], block * BLOCK as u64)?;
    }
    file.sync_all()?;
    let overwrite = syncs(&file, duration, |turn| turn % RECYCLED_BLOCKS)?;
    std::fs::remove_file(&path)?;
    Ok(Syncs { append, overwrite })
}

fn syncs(file: &File, duration: Duration, block: impl Fn(u64) -> u64) -> Result<f64> {
    let (start, mut turn) = (Instant::now(), 0);
    while start.elapsed() < duration {
        file.write_all_at(&[2; BLOCK], block(turn) * BLOCK as u64)?;
        file.sync_data()?;
        turn += 1;
    }
    Ok(turn as f64 / start.elapsed().as_secs_f64())
}
