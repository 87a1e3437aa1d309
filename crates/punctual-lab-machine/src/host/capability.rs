//! The rights that make a difference to Punctual.
use super::parse;

/// Rights of the calling thread, from its effective set. Unknown counts as not allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// CAP_NET_RAW: packet sockets.
    pub net_raw: bool,
    /// CAP_NET_ADMIN: interfaces, buffers beyond the limits, busy polling.
    pub net_admin: bool,
    /// CAP_SYS_NICE: real-time priorities.
    pub sys_nice: bool,
    /// CAP_PERFMON: tracing and performance events.
    pub perfmon: bool,
    /// CAP_IPC_LOCK: locking memory beyond the limit.
    pub ipc_lock: bool,
}

// Bit numbers of `linux/capability.h`.
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const IPC_LOCK: u32 = 14;
const SYS_NICE: u32 = 23;
const PERFMON: u32 = 38;

/// The capabilities in the text of `/proc/<thread>/status`.
pub(super) fn effective(status: &str) -> Capabilities {
    let set = parse::effective_capabilities(status).unwrap_or(0);
    let has = |bit: u32| set & (1 << bit) != 0;
    Capabilities {
        net_raw: has(NET_RAW),
        net_admin: has(NET_ADMIN),
        sys_nice: has(SYS_NICE),
        perfmon: has(PERFMON),
        ipc_lock: has(IPC_LOCK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_is_its_own() {
        let only = |bit: u32| effective(&format!("CapEff:\t{:016x}\n", 1_u64 << bit));
        assert_eq!(only(NET_RAW), Capabilities { net_raw: true, ..Capabilities::default() });
        assert_eq!(only(PERFMON), Capabilities { perfmon: true, ..Capabilities::default() });
        assert_eq!(effective(""), Capabilities::default());
    }
}
