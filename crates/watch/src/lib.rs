//! What waits for things to happen: the watcher, which keeps the kernel right between the
//! events of DHCP clients, and wait-online, which returns when cards are ready.
//!
//! Both are told of changes by the kernel and by inotify(7); neither polls. The watcher:
//!
//! ```text
//! announcements ─▶ interest ─▶ pace ─▶ Engine::turn, Engine::work ─▶ health
//! lease files ──▶ adopt ─────┘   ▲          │
//! ends of leases ────────────────┘          └─▶ fights (what others remove again and again)
//! ```

mod expiries;
mod fights;
mod folders;
pub mod health;
mod interest;
mod leases;
pub mod metadata;
mod pace;
mod programs;
mod service;
mod start;
pub mod wait;
mod watcher;

pub use start::watch;
