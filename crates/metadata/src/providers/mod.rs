//! The providers, one file each.

mod alibaba;
mod azure;
mod digitalocean;
mod ec2;
mod gcp;
mod hetzner;
mod oci;
mod openstack;
mod reading;
mod scaleway;
mod tree;
mod vultr;
mod yaml;

use crate::provider::Provider;

/// All of them. One that only a generic name tells of comes after those with names of their own.
pub(crate) const ALL: &[&dyn Provider] = &[
    &ec2::Ec2,
    &azure::Azure,
    &gcp::Gcp,
    &oci::Oci,
    &alibaba::Alibaba,
    &hetzner::Hetzner,
    &digitalocean::DigitalOcean,
    &scaleway::Scaleway,
    &vultr::Vultr,
    &openstack::OpenStack,
];
