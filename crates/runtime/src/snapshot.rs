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
pub async fn links<K: Kernel>(
    kernel: &K,
    settings: &Settings,
) -> Result<BTreeMap<IfIndex, Link>, KernelError> {
    let mut links = kernel.links().await?;
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
pub async fn host<K: Kernel>(
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
    // A table has the same number in both families, so positions need both.
    let families: &[Family] = match settings.tables {
        TableScheme::IfIndex { .. } => &[family],
        TableScheme::Position { .. } => &Family::BOTH,
    };
    for family in families {
        host.addresses.extend(kernel.addresses(*family).await?);
        let main = match family {
            Family::Ipv4 => MainRoutes::Ipv4Defaults,
            Family::Ipv6 => MainRoutes::Ipv6Of(candidates6(&host, book)),
        };
        host.main.extend(kernel.main_routes(&main).await?);
    }
    read_own(kernel, family, &mut host, book, settings, more).await?;
    Ok(host)
}

/// Reads rules and our own tables again.
///
/// # Errors
///
/// When the kernel cannot be read.
pub async fn read_own<K: Kernel>(
    kernel: &K,
    family: Family,
    host: &mut Host,
    book: &LeaseBook,
    settings: &Settings,
    more: &BTreeSet<IfIndex>,
) -> Result<(), KernelError> {
    host.rules = kernel.rules(family).await?;
    let tables = tables_to_read(family, host, book, settings, more);
    host.own_tables = kernel.table_routes(family, &tables).await?;
    Ok(())
}

/// The whole host in both families, for `status`, bug reports and removals: the tables of
/// all interfaces are read.
///
/// # Errors
///
/// When the kernel cannot be read.
pub async fn everything<K: Kernel>(
    kernel: &K,
    book: &LeaseBook,
    settings: &Settings,
) -> Result<Host, KernelError> {
    let links = links(kernel, settings).await?;
    let more: BTreeSet<IfIndex> = links.keys().copied().collect();
    let mut whole = Host::default();
    for family in Family::BOTH {
        let part = host(kernel, family, links.clone(), book, settings, &more).await?;
        whole.rules.extend(part.rules);
        whole.own_tables.extend(part.own_tables);
        let new = |a: &leaseroute_core::LinkAddress| !whole.addresses.contains(a);
        let addresses: Vec<_> = part.addresses.into_iter().filter(new).collect();
        whole.addresses.extend(addresses);
        let new = |r: &leaseroute_core::ObservedRoute| !whole.main.contains(r);
        let main: Vec<_> = part.main.into_iter().filter(new).collect();
        whole.main.extend(main);
    }
    whole.links = links;
    Ok(whole)
}
