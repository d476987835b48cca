//! Reads a file as nmstate does, makes NetworkManager's profiles of it, and fails when
//! either cannot be done.

use std::error::Error;

use nmstate::NetworkState;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: nmstate-check FILE")?;
    let state = NetworkState::new_from_yaml(&std::fs::read_to_string(path)?)?;
    let files = state.gen_conf()?;
    for (manager, profiles) in &files {
        println!("{manager}: {} profiles", profiles.len());
    }
    Ok(())
}
