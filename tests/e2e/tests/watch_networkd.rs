//! systemd-networkd while everything happens that no hook is told of: three cards behind
//! strict fabrics, both families, asked from outside all the time.

use leaseroute_e2e::disturbed::{Foreign, Keeper, Scene};
use leaseroute_e2e::networkd::Networkd;

/// The probes measure something.
#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn replies_stay_wrong_without_the_watcher() {
    let test = "networkd, hook alone";
    let mut scene: Scene<Networkd> = Scene::new(
        test,
        Keeper::Hook,
        Foreign::Kept,
        |machine: &mut Networkd| {
            machine.install_drop_in();
        },
    );
    scene.stays_wrong_until_an_event();
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn watcher_beside_the_hook_heals_what_happens() {
    let test = "networkd with drop-in, hook and watcher";
    let mut scene: Scene<Networkd> = Scene::new(
        test,
        Keeper::Both,
        Foreign::Kept,
        |machine: &mut Networkd| {
            machine.install_drop_in();
        },
    );
    scene.disturb_all();
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn watcher_alone_heals_what_happens() {
    let test = "networkd without drop-in, watcher alone";
    let mut scene: Scene<Networkd> = Scene::new(test, Keeper::Watcher, Foreign::Taken, |_| {});
    scene.disturb_all();
}

#[test]
#[ignore = "needs root and a DHCP client: tests/run"]
fn watcher_alone_outlasts_a_storm_and_a_lease() {
    let test = "networkd, watcher alone, a storm and a short lease";
    let mut scene: Scene<Networkd> = Scene::new(test, Keeper::Watcher, Foreign::Taken, |_| {});
    scene.storm();
    scene.lose_and_regain_the_lease();
}
