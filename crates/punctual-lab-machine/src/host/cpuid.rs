//! The processor's facts about itself. `cpuid` traps in a guest (about 1 µs): asked once.

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{__cpuid, __cpuid_count};

/// The signature a hypervisor leaves in leaf 0x4000_0000.
#[cfg(target_arch = "x86_64")]
fn hypervisor_signature() -> Option<[u8; 12]> {
    // Leaf 1, ECX bit 31: only a guest has leaf 0x4000_0000.
    (__cpuid(1).ecx >> 31 == 1).then_some(())?;
    let leaf = __cpuid(0x4000_0000);
    let mut signature = [0; 12];
    for (target, word) in signature.chunks_exact_mut(4).zip([leaf.ebx, leaf.ecx, leaf.edx]) {
        target.copy_from_slice(&word.to_le_bytes());
    }
    Some(signature)
}

/// No instruction names the hypervisor.
#[cfg(not(target_arch = "x86_64"))]
fn hypervisor_signature() -> Option<[u8; 12]> {
    None
}

/// (user interrupts, WAITPKG): leaf 7, EDX bit 5 and ECX bit 5. `None` where the leaf does not exist.
#[cfg(target_arch = "x86_64")]
pub(super) fn waiting() -> Option<(bool, bool)> {
    (__cpuid(0).eax >= 7).then_some(())?;
    let leaf = __cpuid_count(7, 0);
    Some((leaf.edx & (1 << 5) != 0, leaf.ecx & (1 << 5) != 0))
}

/// (user interrupts, WAITPKG): x86 alone has them.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn waiting() -> Option<(bool, bool)> {
    None
}

/// The signature a hypervisor leaves in leaf 0x4000_0000, as people call it.
pub(super) fn hypervisor() -> Option<String> {
    let signature = hypervisor_signature()?;
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
