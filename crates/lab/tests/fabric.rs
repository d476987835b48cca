//! The bench tells right from wrong before anything is judged by it.

use leaseroute_core::Family;
use leaseroute_lab::fabric::{Fabric, Ipv6Style, Layout};
use leaseroute_lab::probe::{Matrix, Server};
use std::time::{Duration, Instant};

#[test]
fn first() {
    let t = Instant::now();
    let fabric = Fabric::new(&Layout::separate(3)).unwrap();
    println!("built {:?}", t.elapsed());
    for k in 0..3 {
        fabric.configure_static(k, Ipv6Style::Dhcp).unwrap();
    }
    println!("conf {:?}", t.elapsed());
    let _s = Server::everywhere(fabric.host()).unwrap();
    let m = Matrix::probe(&fabric, &Family::BOTH, Duration::from_secs(1));
    println!("{m}\nprobed {:?}", t.elapsed());
    for k in 0..3 {
        println!("dropped {}", fabric.dropped(k).unwrap());
    }
    let m = Matrix::probe(&fabric, &Family::BOTH, Duration::from_secs(1));
    println!("{m}");
    drop(_s);
    drop(fabric);
    println!("gone {:?}", t.elapsed());
}
