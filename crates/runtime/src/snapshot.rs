//! Reads from the kernel just what one reconciliation needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use leaseroute_core::model::{candidates6, tables_to_read};
use leaseroute_core::{Family, Host, IfIndex, LeaseBook, Link, Settings, TableScheme};
use leaseroute_kernel::{Kernel, KernelError, MainRoutes};

/// All interfaces, with their drivers when the configuration asks for them.
///
/// # Errors
///
/// When the kernel cannot be read.
pub fn links<K: Kernel>(
    kernel: &K,
    settings: &Settings,
) -> Result<BTreeMap<IfIndex, Link>, KernelError> {
    let mut links = kernel.links()?;
    if settings.needs_drivers() {
        for link in &mut links {
            link.driver = driver(link);
        }
    }
    Ok(links.into_iter().map(|link| (link.index, link)).collect())
}

/// The driver of an interface by sysfs; `None` for virtual devices. The name has been
/// checked, so it cannot lead elsewhere.
fn driver(link: &Link) -> Option<String> {
    let path = format!("/sys/class/net/{}/device/driver", link.name);
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// The host as a reconciliation of `family` needs it. `more` are interfaces whose tables
/// are read besides those that could hold objects of ours by what is known.
///
/// # Errors
///
/// When the kernel cannot be read.
pub fn host<K: Kernel>(
    kernel: &K,
    family: Family,
    links: BTreeMap<IfIndex, Link>,
    book: &LeaseBook,
    settings: &Settings,
    more: &BTreeSet<IfIndex>,
) -> Result<Host, KernelError> {
    let mut host = Host {
        links,
        ..Host::default()
    };
    // Our rules say whose routes in table main are worth reading, so they come first.
    read_rules(kernel, family, &mut host, settings)?;
    read_addresses(kernel, family, &mut host, book, settings)?;
    for family in families(family, settings) {
        let main = match family {
            Family::Ipv4 => MainRoutes::Ipv4Defaults,
            Family::Ipv6 => MainRoutes::Ipv6Of(candidates6(&host, book, settings)),
        };
        host.main.extend(kernel.main_routes(&main)?);
    }
    read_tables(kernel, family, &mut host, book, settings, more)?;
    Ok(host)
}

/// Reads the addresses again; those that clients are about to set are among them.
///
/// # Errors
///
/// When the kernel cannot be read.
pub fn read_addresses<K: Kernel>(
    kernel: &K,
    family: Family,
    host: &mut Host,
    book: &LeaseBook,
    settings: &Settings,
) -> Result<(), KernelError> {
    host.addresses.clear();
    for family in families(family, settings) {
        host.addresses.extend(kernel.addresses(*family)?);
        book.add_announced(*family, host);
    }
    Ok(())
}

/// Reads rules and our own tables again.
///
/// # Errors
///
/// When the kernel cannot be read.
pub fn read_own<K: Kernel>(
    kernel: &K,
    family: Family,
    host: &mut Host,
    book: &LeaseBook,
    settings: &Settings,
    more: &BTreeSet<IfIndex>,
) -> Result<(), KernelError> {
    read_rules(kernel, family, host, settings)?;
    read_tables(kernel, family, host, book, settings, more)
}

fn read_rules<K: Kernel>(
    kernel: &K,
    family: Family,
    host: &mut Host,
    settings: &Settings,
) -> Result<(), KernelError> {
    host.rules.clear();
    for family in families(family, settings) {
        host.rules.extend(kernel.rules(*family)?);
    }
    Ok(())
}

fn read_tables<K: Kernel>(
    kernel: &K,
    family: Family,
    host: &mut Host,
    book: &LeaseBook,
    settings: &Settings,
    more: &BTreeSet<IfIndex>,
) -> Result<(), KernelError> {
    host.own_tables.clear();
    for family in families(family, settings) {
        let tables = tables_to_read(*family, host, book, settings, more);
        host.own_tables
            .extend(kernel.table_routes(*family, &tables)?);
    }
    Ok(())
}

/// The families that a run reads for one of them: a table has the same number in both, so
/// positions need both.
fn families(family: Family, settings: &Settings) -> &'static [Family] {
    match (&settings.tables, family) {
        (TableScheme::Position { .. }, _) => &Family::BOTH,
        (TableScheme::IfIndex { .. }, Family::Ipv4) => &[Family::Ipv4],
        (TableScheme::IfIndex { .. }, Family::Ipv6) => &[Family::Ipv6],
    }
}

/// The whole host in both families, for `status`, bug reports and removals: the tables of
/// all interfaces are read.
///
/// # Errors
///
/// When the kernel cannot be read.
pub fn everything<K: Kernel>(
    kernel: &K,
    book: &LeaseBook,
    settings: &Settings,
) -> Result<Host, KernelError> {
    let links = links(kernel, settings)?;
    let more: BTreeSet<IfIndex> = links.keys().copied().collect();
    let mut whole = Host::default();
    for family in Family::BOTH {
        let part = host(kernel, family, links.clone(), book, settings, &more)?;
        add_new(&mut whole.addresses, part.addresses);
        add_new(&mut whole.rules, part.rules);
        add_new(&mut whole.main, part.main);
        add_new(&mut whole.own_tables, part.own_tables);
    }
    whole.links = links;
    Ok(whole)
}

/// Adds what is not there yet: with tables by position each part has both families.
fn add_new<T: PartialEq>(whole: &mut Vec<T>, part: Vec<T>) {
    for item in part {
        if !whole.contains(&item) {
            whole.push(item);
        }
    }
}
