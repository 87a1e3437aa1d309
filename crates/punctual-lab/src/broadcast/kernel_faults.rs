//! Faults that a program in the kernel makes at a member's interface: packets vanish, and bits flip, below every check.

use punctual_lab_machine::xdp::{Damage, DamagePlan, Traffic};
use punctual_machine::namespace::{Offload, set_offload};
use punctual_machine::packet::ETHERTYPE_EXPERIMENTAL;

use super::protocol::{Medium, MemberPlan};
use super::testbed::INTERFACE;
use crate::endpoint::BusPlan;

/// The program, while it is there. Meanwhile this member's runs are cut before they leave: a fault hits one datagram.
#[derive(Debug)]
pub(super) struct KernelFaults(Damage);

impl KernelFaults {
    /// Of a member whose plan has them.
    pub(super) fn of(plan: &MemberPlan) -> Result<Option<Self>, String> {
        if !plan.faults.in_kernel {
            return Ok(None);
        }
        let traffic = match plan.medium {
            Medium::Bus(BusPlan::Ethernet { .. }) => Traffic::Ethernet(ETHERTYPE_EXPERIMENTAL),
            _ => Traffic::AnyUdp,
        };
        let of_a_million = |permille: u32| permille * 1_000;
        let has_checksums = plan.has_checksums;
        let plan = DamagePlan {
            traffic,
            seed: plan.seed,
            loss_ppm: of_a_million(plan.faults.loss_permille),
            corruption_ppm: of_a_million(plan.faults.flips_permille),
            class: (0, 0),
        };
        set_offload(INTERFACE, Offload::Segmentation, false)
            .and_then(|()| set_offload(INTERFACE, Offload::Checksum, !has_checksums))
            .and_then(|()| Damage::attach(INTERFACE, &plan))
            .map(|damage| Some(Self(damage)))
            .map_err(|error| error.to_string())
    }

    /// Packets that came, that were lost, and that were altered.
    pub(super) fn counts(faults: Option<&Self>) -> Result<[u64; 3], String> {
        let Some(Self(damage)) = faults else { return Ok([0; 3]) };
        let [all, _] = damage.counts().map_err(|error| error.to_string())?;
        Ok([all.seen, all.lost, all.flipped])
    }
}

impl Drop for KernelFaults {
    fn drop(&mut self) {
        // A member that cuts its own runs, or sums them, is slower, not wrong.
        let _slower = set_offload(INTERFACE, Offload::Segmentation, true)
            .and_then(|()| set_offload(INTERFACE, Offload::Checksum, true));
    }
}
