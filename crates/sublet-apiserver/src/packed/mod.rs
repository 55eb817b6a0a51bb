//! Large lists for clients that take gzip, without compressing the same objects again and again.
//!
//! A list is cut into pieces of neighbouring items, each compressed apart and kept for a while. Where it is cut depends
//! on the keys of the items, so a change of one object makes one piece anew and leaves the others as they are. The body
//! is the deflated pieces, one after the other, with the head of the list before and its tail behind them.

mod cache;
mod piece;

use crate::store::entry::Entry;
use cache::{Key, cache};
use piece::{Gzip, Packer, Piece};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::time::Instant;

/// About how many bytes of items a piece has. Much less compresses worse, much more makes a change dear.
const PIECE_BYTES: usize = 64 << 10;
/// A piece that reaches this ends, whatever the keys say.
const PIECE_BYTES_MAX: usize = 4 * PIECE_BYTES;

/// How a list is written. The bytes of an item depend on nothing but its entry.
pub(crate) trait ListForm {
    type Error;

    /// Tells forms apart in which the same entries have other bytes.
    fn name(&self) -> Arc<str>;

    fn write_item(&self, out: &mut Vec<u8>, entry: &Entry) -> Result<(), Self::Error>;

    /// What stands between two items.
    fn separator(&self) -> &'static [u8];

    /// What stands before and behind all items, which take so many bytes.
    fn around(&self, items_bytes: usize) -> Result<(Vec<u8>, Vec<u8>), Self::Error>;
}

/// The bytes of the list.
pub(crate) fn plain<F: ListForm>(form: &F, entries: &[Arc<Entry>]) -> Result<Vec<u8>, F::Error> {
    let items = write_items(form, entries)?;
    let (head, tail) = form.around(items.len())?;
    let mut out = Vec::with_capacity(head.len() + items.len() + tail.len());
    for part in [&head, &items, &tail] {
        out.extend_from_slice(part);
    }
    Ok(out)
}

/// The bytes of the list, compressed. `store` says which store the entries are from.
pub(crate) fn gzip<F: ListForm>(store: u64, form: &F, entries: &[Arc<Entry>]) -> Result<Vec<u8>, F::Error> {
    let name = form.name();
    let mut packer = None;
    let mut pieces: Vec<Arc<Piece>> = Vec::new();
    for members in cut(entries) {
        let key = Key { store, form: name.clone(), revisions: members.iter().map(|e| e.revision).collect() };
        let known = cache().get(&key, Instant::now());
        pieces.push(match known {
            Some(piece) => piece,
            None => {
                let items = write_items(form, members)?;
                let piece = Arc::new(packer.get_or_insert_with(Packer::new).pack(&items));
                cache().insert(key, piece.clone(), Instant::now());
                piece
            }
        });
    }
    let separator = form.separator();
    let items_bytes = pieces.iter().map(|p| p.length()).sum::<usize>() + separator.len() * pieces.len().saturating_sub(1);
    let (head, tail) = form.around(items_bytes)?;
    let mut out = Gzip::with_capacity(head.len() + pieces.iter().map(|p| p.size_bytes()).sum::<usize>());
    out.stored(&head);
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 {
            out.stored(separator);
        }
        out.piece(piece);
    }
    out.stored(&tail);
    Ok(out.finish())
}

/// Gives back the memory of pieces that nobody asked for; a maintenance step.
pub(crate) fn forget_unused() {
    cache().forget_unused(Instant::now());
}

fn write_items<F: ListForm>(form: &F, entries: &[Arc<Entry>]) -> Result<Vec<u8>, F::Error> {
    let mut out = Vec::with_capacity(entries.iter().map(|e| e.json.len() + 1).sum());
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(form.separator());
        }
        form.write_item(&mut out, entry)?;
    }
    Ok(out)
}

/// Neighbours in groups of about the same size. A group begins where the hash of a key says so.
fn cut(entries: &[Arc<Entry>]) -> impl Iterator<Item = &[Arc<Entry>]> {
    let bytes: usize = entries.iter().map(|e| e.json.len()).sum();
    let average = bytes.checked_div(entries.len()).unwrap_or_default().max(1);
    // A power of two seldom changes when the average does, and half of its cuts are those of the next one.
    let every = (PIECE_BYTES / average).max(1).next_power_of_two() as u64;
    let mut group_bytes = 0;
    entries.chunk_by(move |entry, next| {
        group_bytes += entry.json.len();
        let ends = begins(&next.key, every) || group_bytes + next.json.len() > PIECE_BYTES_MAX;
        if ends {
            group_bytes = 0;
        }
        !ends
    })
}

fn begins(key: &str, every: u64) -> bool {
    // Not the hasher of a map: cuts stay where they are for the life of the process.
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish().is_multiple_of(every)
}

#[cfg(test)]
mod tests;
