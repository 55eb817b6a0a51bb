//! What one tenant may take of a process that many share.
//!
//! A [`Share`] is one tenant's part of a [`House`]. Its tasks run inside of [`Share::run`]: each time the
//! runtime polls one of them it takes a *turn*, and of turns a tenant has few, so that of a thousand busy
//! tasks of one tenant only some stand in the queues of the runtime, and a neighbour's task waits behind
//! those and not behind the thousand. What computes for long runs inside of [`Share::heavy`], which takes
//! the turn off the runtime's threads: the kernel shares out cores among threads, and stops no poll.
//! [`Budget`] counts bytes.
//!
//! A tenant that is alone with its requests has all turns that there are.

mod budget;
mod house;
mod lane;
mod turn;

pub use budget::{Budget, Spent};
pub use house::House;
pub use turn::{Heavy, Running, Share};
