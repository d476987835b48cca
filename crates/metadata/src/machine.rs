//! What the firmware says of the machine, from sysfs and the device tree.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::provider::Identity;

/// The most that is read of one file, in bytes.
const LONGEST: u64 = 4096;

impl Identity {
    /// Reads it below a root folder, `/` for the machine itself. What is missing or may not be
    /// read (serial number and UUID are root's alone) is empty.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = |path: &str| -> String {
            let bytes = bytes_of(&root.join(path));
            String::from_utf8_lossy(&bytes).trim().to_owned()
        };
        let dmi = |name: &str| text(&format!("sys/class/dmi/id/{name}"));
        let tree = ["compatible", "model"].into_iter().flat_map(|name| {
            let bytes = bytes_of(&root.join("sys/firmware/devicetree/base").join(name));
            let values = bytes.split(|byte| *byte == 0);
            let values = values.map(|value| String::from_utf8_lossy(value).trim().to_owned());
            let values = values.filter(|value| !value.is_empty());
            values.collect::<Vec<_>>()
        });
        Self {
            sys_vendor: dmi("sys_vendor"),
            product_name: dmi("product_name"),
            product_serial: dmi("product_serial"),
            product_uuid: dmi("product_uuid"),
            chassis_asset_tag: dmi("chassis_asset_tag"),
            chassis_vendor: dmi("chassis_vendor"),
            board_vendor: dmi("board_vendor"),
            board_asset_tag: dmi("board_asset_tag"),
            bios_vendor: dmi("bios_vendor"),
            bios_version: dmi("bios_version"),
            hypervisor_uuid: text("sys/hypervisor/uuid"),
            device_tree: tree.collect(),
        }
    }
}

fn bytes_of(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    if read.is_err() {
        bytes.clear();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_firmware_says_is_trimmed_bounded_and_split() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, bytes: &[u8]| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        write("sys/class/dmi/id/sys_vendor", b"Amazon EC2\n");
        write("sys/class/dmi/id/product_name", &[b'x'; 10_000]);
        write("sys/class/dmi/id/board_vendor", b"\xff\xfe\n");
        write(
            "sys/firmware/devicetree/base/compatible",
            b"linux,dummy-virt\0other\0",
        );
        write("sys/firmware/devicetree/base/model", b"a machine\0");
        let identity = Identity::read(root.path());
        assert_eq!(identity.sys_vendor, "Amazon EC2");
        assert_eq!(identity.product_name.len(), 4096);
        assert_eq!(identity.board_vendor, "\u{fffd}\u{fffd}");
        assert_eq!(identity.product_uuid, "");
        assert_eq!(
            identity.device_tree,
            ["linux,dummy-virt", "other", "a machine"]
        );
    }

    #[test]
    fn a_machine_that_says_nothing_has_an_empty_identity() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Identity::read(root.path()), Identity::default());
    }
}
