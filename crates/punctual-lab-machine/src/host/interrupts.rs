//! The interrupts of network devices and of disks, as sysfs tells them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Kind of a device that interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// A network device.
    Network,
    /// A disk, or a controller of some.
    Storage,
}

/// The numbers of the interrupts of network devices and of disks. Those of both kinds, and of devices that sysfs has no interrupts of,
/// are not among them.
pub fn device_interrupts() -> BTreeMap<u32, DeviceKind> {
    below(Path::new("/sys"))
}

fn below(root: &Path) -> BTreeMap<u32, DeviceKind> {
    let of_class = |folder: &str, kind: DeviceKind| -> BTreeMap<u32, DeviceKind> {
        let places = entries(&root.join(folder)).into_iter();
        places.filter_map(|place| numbers(&place, root)).flatten().map(|number| (number, kind)).collect()
    };
    let mut network = of_class("class/net", DeviceKind::Network);
    let mut storage = of_class("block", DeviceKind::Storage);
    // Of an interrupt that two devices share nobody knows which it was.
    let shared: Vec<u32> = network.keys().copied().filter(|number| storage.contains_key(number)).collect();
    network.append(&mut storage);
    network.retain(|number, _| !shared.contains(number));
    network
}

/// The interrupts of the device at a place: its own, or those of the nearest device above it that has some, such as its controller.
fn numbers(place: &Path, root: &Path) -> Option<Vec<u32>> {
    let (root, device) = (root.canonicalize().ok()?, place.join("device").canonicalize().ok()?);
    device.ancestors().take_while(|above| *above != root).find_map(own_numbers)
}

/// The interrupts of this very device; nothing if it is of a kind that has none.
fn own_numbers(device: &Path) -> Option<Vec<u32>> {
    let name = |path: PathBuf| path.file_name()?.to_str()?.parse().ok();
    let messages: Vec<u32> = entries(&device.join("msi_irqs")).into_iter().filter_map(name).collect();
    if !messages.is_empty() {
        return Some(messages);
    }
    // A device that interrupts by messages uses no line, and this number may be another's.
    let line: u32 = fs::read_to_string(device.join("irq")).ok()?.trim().parse().ok()?;
    Some(Some(line).filter(|&line| line > 0).into_iter().collect())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree as sysfs has it.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("room"))
        }

        /// A device of the PCI bus, with its line and the interrupts that it has by messages.
        fn pci(&self, name: &str, line: u32, messages: &[u32]) {
            let device = self.0.path().join("devices/pci0000:00").join(name);
            fs::create_dir_all(device.join("msi_irqs")).expect("room");
            fs::write(device.join("irq"), format!("{line}\n")).expect("room");
            for number in messages {
                fs::write(device.join("msi_irqs").join(number.to_string()), "msix\n").expect("room");
            }
        }

        /// An entry of a class, whose device is that one.
        fn entry(&self, class: &str, name: &str, device: &str) {
            let (place, device) = (self.0.path().join(class).join(name), self.0.path().join(device));
            fs::create_dir_all(&device).expect("room");
            fs::create_dir_all(&place).expect("room");
            symlink(device, place.join("device")).expect("room");
        }
    }

    /// Goal: interrupts are found by messages and by lines, of the device itself, of virtio's parent and of a disk's controller. An
    /// interrupt of two kinds of devices is nobody's, nor is one of a bridge above a device without any.
    #[test]
    fn interrupts_are_found_through_the_devices_above() {
        let tree = Tree::new();
        tree.pci("0000:00:00.0", 7, &[]);
        tree.pci("0000:00:01.0", 11, &[30, 31]);
        tree.pci("0000:00:02.0", 11, &[40]);
        tree.pci("0000:00:03.0", 12, &[]);
        tree.pci("0000:00:04.0", 13, &[50]);
        tree.pci("0000:00:05.0", 14, &[60]);
        tree.pci("0000:00:05.0/0000:01:00.0", 0, &[]);
        tree.entry("class/net", "eth0", "devices/pci0000:00/0000:00:01.0/virtio0");
        tree.entry("class/net", "wan", "devices/pci0000:00/0000:00:03.0");
        tree.entry("class/net", "usb0", "devices/pci0000:00/0000:00:04.0/usb1/1-1");
        tree.entry("class/net", "odd", "devices/pci0000:00/0000:00:05.0/0000:01:00.0");
        tree.entry("class/net", "board", "devices/platform/fec");
        tree.entry("block", "sda", "devices/pci0000:00/0000:00:02.0/ata1/host0/target0:0:0");
        tree.entry("block", "sdb", "devices/pci0000:00/0000:00:04.0/usb1/1-2/host1");
        fs::create_dir_all(tree.0.path().join("block/loop0")).expect("room");
        let found: Vec<_> = below(tree.0.path()).into_iter().collect();
        let (network, storage) = (DeviceKind::Network, DeviceKind::Storage);
        assert_eq!(found, [(12, network), (30, network), (31, network), (40, storage)]);
        assert!(below(&tree.0.path().join("absent")).is_empty());
        // Reading ends on every host.
        let _here = device_interrupts();
    }
}
