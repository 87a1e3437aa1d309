//! What the processor says about itself. `cpuid` traps in a guest (about 1 µs): asked once.

pub(super) use crate::arch::waiting;

/// The signature a hypervisor leaves in leaf 0x4000_0000, as people call it.
pub(super) fn hypervisor() -> Option<String> {
    let signature = crate::arch::hypervisor_signature()?;
    let text: String =
        signature.iter().filter(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte)).collect();
    let name = match text.as_str() {
        "" => return None,
        "KVMKVMKVM" => "KVM",
        "MicrosoftHv" => "Hyper-V",
        "VMwareVMware" => "VMware",
        "XenVMMXenVMM" => "Xen",
        "TCGTCGTCGTCG" => "QEMU TCG",
        "bhyvebhyve" => "bhyve",
        other => other,
    };
    Some(name.to_owned())
}
