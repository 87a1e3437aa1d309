//! Vehicles drive along a road; each speaks in the group of the cell that it is in. Run: `cargo run -p punctual --example groups`
use std::time::{Duration, Instant};

use punctual::keyed_group::{GroupLeader, GroupMember, GroupTiming, Secret, group_of_cell};
use punctual::seal::KeyError;
use punctual::{Bus, Communicator, Keys, Node, NodeId, Target};

const CELL_M: f64 = 100.0;
const EXCHANGE: u16 = 9;

struct Vehicle {
    name: &'static str,
    at_m: f64,
    member: GroupMember,
    voice: Communicator,
}

fn leader_of(at_m: f64) -> NodeId {
    NodeId::named(&format!("cell-{}", (at_m / CELL_M) as u32))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fleet_key = Keys::random(0);
    // Here one key is passed around in memory; vehicles would read it from a file: Keys::from_file.
    let master = Secret::new([0x5E; 32]).ok_or("a secret of zeros is none")?;
    let open = |name: &str, keys: &Keys| Node::open(&Bus::loopback("road").sealed(keys), name);
    let mut leaders = Vec::new();
    for cell in 0..3 {
        let keys = fleet_key.copied();
        let node = open(&format!("cell-{cell}"), &keys)?;
        let group = group_of_cell(f64::from(cell) * CELL_M, 0.0, CELL_M);
        leaders.push(GroupLeader::new(
            node.bind(EXCHANGE)?,
            &keys,
            group,
            master.clone(),
            GroupTiming::default(),
        )?);
    }
    let mut vehicles = Vec::new();
    for (name, at_m) in [("ann", 10.0), ("ben", 60.0)] {
        let keys = fleet_key.copied();
        let node = open(name, &keys)?;
        let secret = master.of_member(node.id());
        let mut member = GroupMember::new(node.bind(EXCHANGE)?, &keys, secret, GroupTiming::default())?;
        member.join(leader_of(at_m), group_of_cell(at_m, 0.0, CELL_M))?;
        vehicles.push(Vehicle { name, at_m, member, voice: node.bind(1)? });
    }
    let start = Instant::now();
    let mut next = start + Duration::from_millis(500);
    while start.elapsed() < Duration::from_secs(8) {
        for leader in &mut leaders {
            leader.turn(|_| ())?;
        }
        let is_time = Instant::now() >= next;
        for vehicle in &mut vehicles {
            let Vehicle { name, at_m, member, voice } = vehicle;
            let own = voice.address();
            member.turn(|change| println!("{name} at {at_m:.0} m: {change:?}"))?;
            while let Ok(message) = voice.try_receive() {
                if message.source == own {
                    continue;
                }
                let text = String::from_utf8_lossy(message.payload);
                println!("{name} hears in group {:x}: {text}", message.sealed_in.unwrap_or(0));
            }
            if is_time {
                drive(vehicle)?;
            }
        }
        if is_time {
            next += Duration::from_millis(500);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Half a second of the road: 15 m, a greeting, and another group where a new cell begins.
fn drive(vehicle: &mut Vehicle) -> Result<(), KeyError> {
    let before = leader_of(vehicle.at_m);
    vehicle.at_m += 15.0;
    let greeting = format!("{} is at {:.0} m", vehicle.name, vehicle.at_m);
    // Nobody else may be there.
    let _nobody = vehicle.voice.try_send(Target::everyone_at(1), greeting.as_bytes());
    if leader_of(vehicle.at_m) != before {
        vehicle.member.join(leader_of(vehicle.at_m), group_of_cell(vehicle.at_m, 0.0, CELL_M))?;
    }
    Ok(())
}
