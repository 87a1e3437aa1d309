//! Once all are in one view, broadcasting, ordering, repairing and delivering allocate nothing.

use punctual_machine::allocation::{Counting, count};
use punctual_proto::broadcast::{Event, GroupOptions, Guarantee, Member};
use punctual_proto::{Address, Nanos, NodeId, Port, Protocol};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SIZE: usize = 3;

fn node(place: usize) -> NodeId {
    NodeId::new(100 + place as u64).expect("a number of a node")
}

fn member(place: usize) -> Member {
    let roster = (0..SIZE).map(node).collect();
    let group = GroupOptions::new(7, roster, node(place), Port::from(1));
    let options = GroupOptions { founds: place == 0, ..group };
    Member::new(options, 11 + place as u64, Nanos(0)).expect("good options")
}

/// One step of all members: everything they say is heard at once, but for one of eleven messages. Says what was delivered.
fn step(members: &mut [Member], now: Nanos, buffer: &mut [u8], said: &mut u64) -> usize {
    let mut delivered = 0;
    for source in 0..SIZE {
        members[source].handle_timeout(now);
        while let Some(message) = members[source].poll_transmit(now, buffer) {
            let address = Address { node: node(source), port: Port::from(1) };
            for target in (0..SIZE).filter(|&target| target != source) {
                *said += 1;
                if message.target.includes_node(node(target)) && !said.is_multiple_of(11) {
                    members[target].handle_message(address, &buffer[..message.size], now);
                }
            }
        }
        while let Some(event) = members[source].poll_event() {
            delivered += usize::from(matches!(event, Event::Delivered(_)));
        }
    }
    delivered
}

#[test]
fn broadcasting_allocates_nothing() {
    let mut members: Vec<Member> = (0..SIZE).map(member).collect();
    let mut buffer = vec![0; 8_192];
    let message = vec![7; 5_000];
    let (mut now, mut said, mut delivered, mut taken) = (Nanos(0), 0, 0, 0);
    let mut run = |steps: usize| {
        let before = count();
        (delivered, taken) = (0, 0);
        for at in 0..steps {
            now = now.plus(Nanos::from_micros(200));
            let sender = &mut members[at % SIZE];
            taken += usize::from(sender.try_broadcast(&message, Guarantee::Uniform, now).is_ok());
            delivered += step(&mut members, now, &mut buffer, &mut said);
        }
        (count() - before, delivered, taken)
    };
    let (allocations, delivered, _) = run(2_000);
    assert!(
        delivered > 1_000 && allocations > 0,
        "{delivered}: views are installed, and growing memory has grown"
    );
    let (allocations, delivered, taken) = run(2_000);
    assert!(delivered > 2 * taken && taken > 1_000, "{delivered} of {taken}");
    assert_eq!(allocations, 0);
}
