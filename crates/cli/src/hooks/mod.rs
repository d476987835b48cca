//! `leaseroute hooks`: what makes the DHCP clients of a system call our hooks.
//!
//! `table` says as data what belongs where and why; everything else here is the same for
//! all clients. `root` is the only part that touches files, `entry` compares one row of the
//! table with what is there, `presence` finds the clients, `change` puts and takes rows, `list` shows them, and
//! `processes` and `cards` find out which client is at work on which card.
//!
//! Nothing is recorded elsewhere: whether a file is ours is seen from its path and its
//! text. What is not ours is never changed or removed.

mod cards;
mod change;
mod entry;
mod list;
mod presence;
mod processes;
mod programs;
mod room;
mod root;
mod table;
mod text;

pub(crate) use change::{ChangedHooks, install, remove};
pub(crate) use list::{ClientView, HooksView, Word, list};
pub(crate) use room::Room;
pub(crate) use root::{Found, Root};
pub(crate) use table::ROOMS;
