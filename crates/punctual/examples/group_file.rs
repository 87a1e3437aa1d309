//! One member of a group that stands in a file. In three terminals:
//!
//! ```sh
//! cargo run -p punctual --features group-file --example group_file -- crates/punctual/examples/group.toml plc
//! cargo run -p punctual --features group-file --example group_file -- crates/punctual/examples/group.toml robot
//! cargo run -p punctual --features group-file --example group_file -- crates/punctual/examples/group.toml camera
//! ```
//!
//! Once all are there, each broadcasts three messages. All print the same nine lines.
use std::error::Error;
use std::time::{Duration, Instant};

use punctual::broadcast::{DeliverError, Delivery, Group, GroupFile};

const MESSAGES: usize = 3;
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, name] = &arguments[..] else { return Err("group_file FILE MEMBER".into()) };
    let file = GroupFile::read(path)?;
    let size = file.members().count();
    let member = file.member(name)?;
    let node = member.open_node()?;
    let mut group = Group::join(&node, &member.group)?;

    let give_up = Instant::now() + LIMIT;
    let (mut said, mut heard, mut are_there) = (0, 0, false);
    while heard < size * MESSAGES {
        if are_there && said < MESSAGES {
            said += usize::from(group.try_broadcast(format!("{name} says {said}").as_bytes()).is_ok());
        }
        match group.deliver(Duration::from_millis(10)) {
            Ok(Delivery::View(view)) => are_there |= view.members.len() == size,
            Ok(Delivery::Message(message)) => {
                println!("{}", String::from_utf8_lossy(message.payload));
                heard += 1;
            }
            Ok(_) | Err(DeliverError::Empty) => {}
            // Such as an option that is another one in a member's file: it is told once.
            Err(error) => return Err(error.into()),
        }
        if Instant::now() > give_up {
            return Err(format!("of {size} members {} are there", group.view().members.len()).into());
        }
    }
    group.leave();
    while group.deliver(LIMIT).is_ok() {}
    Ok(())
}
