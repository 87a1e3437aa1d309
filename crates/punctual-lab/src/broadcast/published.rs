//! The table that is to be beaten, as printed: one node sends 1 GB by atomic broadcast in messages of 30 KB, MB/s at the sender.
//! Its generator counted 1 MB for each message of 30 KB, so that what it truly delivered is 33.3 times less.

use super::option::{BroadcastKind, FaultProfile};

/// Members of the three groups.
const MEMBERS: [usize; 3] = [4, 7, 10];

/// Loss and flips of a thousand, and MB/s with so many members.
const SPEEDS: [((u32, u32), [f64; 3]); 5] = [
    ((0, 0), [17.24, 13.15, 11.90]),
    ((10, 0), [13.88, 10.99, 9.26]),
    ((10, 10), [11.36, 9.26, 7.57]),
    ((20, 10), [10.10, 7.93, 6.76]),
    ((30, 10), [9.00, 6.94, 6.13]),
];

/// Speed that was printed for such a group and such faults, MB/s. Nothing was for messages without order.
pub(super) fn speed(kind: BroadcastKind, members: usize, faults: FaultProfile) -> Option<f64> {
    if !kind.is_ordered() {
        return None;
    }
    let place = MEMBERS.iter().position(|&of| of == members)?;
    let of = (faults.loss_permille, faults.flips_permille);
    SPEEDS.iter().find(|(faults, _)| *faults == of).map(|(_, speeds)| speeds[place])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_looked_up() {
        let speed_of = |members, faults: &str| speed(BroadcastKind::Ab, members, faults.parse().unwrap());
        assert_eq!((speed_of(4, "0/0"), speed_of(10, "3/1")), (Some(17.24), Some(6.13)));
        assert_eq!((speed_of(5, "0/0"), speed_of(4, "5/0")), (None, None));
        assert_eq!(speed(BroadcastKind::Urb, 4, "0/0".parse().unwrap()), None);
    }
}
