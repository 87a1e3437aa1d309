//! A group in a file: its members, its medium, and its options (`docs/broadcast.md`, *From a file*).

mod table;
mod value;

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use punctual_proto::limits::{
    BROADCAST_MESSAGE_SIZE_MAX, BROADCAST_WINDOW_MAX, GROUP_MEMBERS_MAX, PAYLOAD_SIZE_MAX,
};
use punctual_proto::sim::Rng;
use rustix::fs::OFlags;
use toml::de::DeTable;

use super::GroupOptions;
use crate::engine::faulty::Faults;
use crate::node::{Bus, Node, NodeOptions, OpenError};
use table::{Fault, Table};

/// Largest file, bytes: one of the largest group, with a page of comments for each member.
const FILE_SIZE_MAX: u64 = 64 << 10;

const GROUP_KEYS: [&str; 16] = [
    "name",
    "medium",
    "bus",
    "multicast",
    "founder",
    "port",
    "guarantee",
    "frame_size",
    "window",
    "message_size_max",
    "heartbeat",
    "suspect_after",
    "round_trip",
    "expel_slow_after",
    MEMBER,
    FAULTS,
];
/// The list of members.
const MEMBER: &str = "member";
/// The table of faults.
const FAULTS: &str = "faults";
const MEMBER_KEYS: [&str; 3] = ["name", "address", "interface"];
const FAULT_KEYS: [&str; 6] =
    ["seed", "loss_permille", "corruption_permille", "duplication_permille", "reordering_permille", "delay"];

/// A group as a file describes it, the same at all members. It takes the feature `group-file`.
///
/// ```
/// use punctual::broadcast::{Group, GroupFile};
///
/// let text = r#"
///     name = "cell"
///     medium = "peers"
///     founder = "plc"
///     heartbeat = "5ms"
///
///     [[member]]
///     name = "plc"
///     address = "127.0.0.1:47101"
///
///     [[member]]
///     name = "robot"
///     address = "127.0.0.1:47102"
/// "#;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("cell.toml");
/// # std::fs::write(&path, text)?;
/// let cell = GroupFile::read(&path)?;
/// let plc = cell.member("plc")?;
/// let node = plc.open_node()?;
/// let mut group = Group::join(&node, &plc.group)?;
/// assert_eq!(group.deliver(std::time::Duration::from_secs(10)).is_ok(), true);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GroupFile {
    path: PathBuf,
    places: Vec<Place>,
    founder: usize,
    medium: Medium,
    options: GroupOptions,
    faults: Option<Faults>,
}

/// Everything that one member needs to take part.
#[derive(Clone, Debug)]
pub struct GroupMember {
    /// The bus of the group, as this member reaches it. Seal it before a node is opened, if it is to be sealed.
    pub bus: Bus,
    /// Its node, with the faults that the file asks for: of each member others, by the file's seed.
    pub node: NodeOptions,
    /// The group.
    pub group: GroupOptions,
}

impl GroupMember {
    /// Opens its node on the group's bus.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub fn open_node(&self) -> Result<Node, OpenError> {
        self.node.open(&self.bus)
    }
}

/// A member, and how it reaches the medium.
#[derive(Clone, Debug)]
struct Place {
    name: String,
    at: At,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum At {
    Memory,
    Address(SocketAddr),
    InterfaceAddress(Ipv4Addr),
    Interface(String),
}

#[derive(Clone, Debug)]
enum Medium {
    Loopback(String),
    Shared(String),
    Multicast(SocketAddr),
    Peers,
    Ethernet,
}

impl GroupFile {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`GroupFileError`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self, GroupFileError> {
        let path = path.as_ref();
        let text =
            read_text(path).map_err(|error| GroupFileError::Unreadable { path: path.to_owned(), error })?;
        Self::parse(&text, path)
    }

    /// Reads what stands in a file of that path; errors name it.
    ///
    /// # Errors
    /// [`GroupFileError::Line`].
    pub fn parse(text: &str, path: impl Into<PathBuf>) -> Result<Self, GroupFileError> {
        let path = path.into();
        let at_line = |Fault { line, what }| GroupFileError::Line { path: path.clone(), line, what };
        let entries = DeTable::parse(text).map_err(|error| at_line(Fault::of_syntax(text, &error)))?;
        let file = of_table(Table::top(text, entries.get_ref())).map_err(at_line)?;
        Ok(Self { path, ..file })
    }

    /// The names of all members, in the order of the roster.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.places.iter().map(|place| &*place.name)
    }

    /// Everything that the member of that name needs.
    ///
    /// # Errors
    /// [`GroupFileError::Stranger`].
    pub fn member(&self, name: &str) -> Result<GroupMember, GroupFileError> {
        let place =
            self.members().position(|member| member == name).ok_or_else(|| GroupFileError::Stranger {
                path: self.path.clone(),
                name: name.to_owned(),
                members: self.members().map(str::to_owned).collect(),
            })?;
        let mut node = NodeOptions::new(name);
        if let Some(faults) = self.faults {
            let seed = Rng::at(&[faults.seed, place as u64]).number();
            node = node.faults(Faults { seed, ..faults });
        }
        let group = GroupOptions { founds: place == self.founder, ..self.options.clone() };
        Ok(GroupMember { bus: self.bus(place), node, group })
    }

    fn bus(&self, own: usize) -> Bus {
        match (&self.medium, &self.places[own].at) {
            (Medium::Loopback(name), _) => Bus::loopback(name),
            (Medium::Shared(name), _) => Bus::shared(name),
            (Medium::Multicast(group), At::InterfaceAddress(interface)) => Bus::multicast(*group, *interface),
            (Medium::Peers, At::Address(local)) => {
                let address = |place: &Place| match place.at {
                    At::Address(address) if address != *local => Some(address),
                    _ => None,
                };
                Bus::peers(*local, &self.places.iter().filter_map(address).collect::<Vec<_>>())
            }
            (Medium::Ethernet, At::Interface(interface)) => Bus::ethernet(interface),
            (medium, at) => unreachable!("{at:?} was read for {medium:?}"),
        }
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    // A pipe in its place would make us wait.
    let file =
        OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut bytes = Vec::new();
    if file.take(FILE_SIZE_MAX + 1).read_to_end(&mut bytes)? as u64 > FILE_SIZE_MAX {
        let text = format!("it has more than {FILE_SIZE_MAX} bytes, where a group needs less");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no UTF-8"))
}

/// The file but for its path.
fn of_table(group: Table<'_>) -> Result<GroupFile, Fault> {
    group.allow(&GROUP_KEYS)?;
    let name = group.need("name", "\"cell\"", value::name)?;
    let medium = medium(group, name)?;
    let places = places(&group.tables(MEMBER)?, &medium)?;
    if places.is_empty() {
        return Err(Fault::new(
            1,
            format!("no member is there: add [[{MEMBER}]], and below it a line such as name = \"plc\""),
        ));
    }
    let founder = group.need("founder", &format!("{:?}", places[0].name), |value| {
        let name = value::text(value)?;
        places.iter().position(|place| place.name == name).ok_or_else(|| {
            format!("{name:?} is none of the members: write the name of the one that founds the group")
        })
    })?;
    let faults = group.table(FAULTS)?.map(of_faults).transpose()?;
    let names: Vec<&str> = places.iter().map(|place| &*place.name).collect();
    let options = options(group, GroupOptions::new(name, &names))?;
    Ok(GroupFile { path: PathBuf::new(), places, founder, medium, options, faults })
}

fn medium(group: Table<'_>, name: &str) -> Result<Medium, Fault> {
    let bus = group.get("bus", value::name)?;
    let multicast = group.get("multicast", value::multicast)?;
    let named = || bus.unwrap_or(name).to_owned();
    let medium = group.need("medium", "\"peers\"", |value| {
        Ok(match (value::text(value)?, multicast) {
            ("loopback", _) => Medium::Loopback(named()),
            ("shared", _) => Medium::Shared(named()),
            ("multicast", Some(address)) => Medium::Multicast(address),
            ("multicast", None) => {
                return Err("multicast needs an address for all: add multicast = \"239.1.1.1:7700\"".to_owned());
            }
            ("peers", _) => Medium::Peers,
            ("ethernet", _) => Medium::Ethernet,
            (other, _) => {
                return Err(format!(
                    "{other:?} is no medium: write \"loopback\", \"shared\", \"peers\", \"multicast\" or \"ethernet\""
                ));
            }
        })
    })?;
    let is_named = matches!(medium, Medium::Loopback(_) | Medium::Shared(_));
    let is_multicast = matches!(medium, Medium::Multicast(_));
    for (key, has_meaning) in [("bus", is_named), ("multicast", is_multicast)] {
        if let Some(line) = group.line_of(key).filter(|_| !has_meaning) {
            return Err(Fault::new(line, format!("{key} means nothing with this medium: remove the line")));
        }
    }
    Ok(medium)
}

fn places(members: &[Table<'_>], medium: &Medium) -> Result<Vec<Place>, Fault> {
    let mut places: Vec<Place> = Vec::new();
    for (index, member) in members.iter().enumerate() {
        member.allow(&MEMBER_KEYS)?;
        if index == GROUP_MEMBERS_MAX {
            return Err(Fault::new(
                member.line(),
                format!(
                    "a group has {GROUP_MEMBERS_MAX} members at most: remove this one, or make a second group"
                ),
            ));
        }
        let name = member.need("name", "\"plc\"", value::name)?;
        let (key, at) = match medium {
            Medium::Loopback(_) | Medium::Shared(_) => (None, At::Memory),
            Medium::Peers => {
                let address = member.need("address", "\"10.0.0.1:7700\"", value::address)?;
                (Some("address"), At::Address(address))
            }
            Medium::Multicast(_) => {
                let interface = member.need("interface", "\"10.0.0.1\"", value::interface_address)?;
                (Some("interface"), At::InterfaceAddress(interface))
            }
            Medium::Ethernet => {
                let interface = member.need("interface", "\"eth0\"", value::interface_name)?;
                (Some("interface"), At::Interface(interface.to_owned()))
            }
        };
        let strange = ["address", "interface"]
            .into_iter()
            .find(|other| key != Some(*other) && member.line_of(other).is_some());
        if let Some((key, line)) = strange.and_then(|key| Some((key, member.line_of(key)?))) {
            return Err(Fault::new(line, format!("{key} means nothing with this medium: remove the line")));
        }
        let is_taken = |other: &Place| matches!(at, At::Address(_)) && other.at == at;
        for (key, other) in [
            ("name", places.iter().position(|other| other.name == name)),
            ("address", places.iter().position(is_taken)),
        ] {
            if let Some(other) = other {
                let line = member.line_of(key).unwrap_or(member.line());
                let first = members[other].line_of(key).unwrap_or(members[other].line());
                return Err(Fault::new(
                    line,
                    format!("{key} is that of line {first} too: give each member its own"),
                ));
            }
        }
        places.push(Place { name: name.to_owned(), at });
    }
    Ok(places)
}

fn options(group: Table<'_>, usual: GroupOptions) -> Result<GroupOptions, Fault> {
    let count = |key, most: usize| {
        let number = group.get(key, value::number(1..=most as u64))?;
        Ok(number.map(|number| number as usize))
    };
    // The last port is for those that are chosen freely.
    let port = group.get("port", value::number(0..=u64::from(u16::MAX) - 1))?;
    let options = GroupOptions {
        port: port.map_or(usual.port, |port| port as u16),
        guarantee: group.get("guarantee", value::guarantee)?.unwrap_or(usual.guarantee),
        frame_size: count("frame_size", PAYLOAD_SIZE_MAX)?.or(usual.frame_size),
        window: count("window", BROADCAST_WINDOW_MAX)?.or(usual.window),
        message_size_max: count("message_size_max", BROADCAST_MESSAGE_SIZE_MAX)?
            .unwrap_or(usual.message_size_max),
        heartbeat: group.get("heartbeat", value::interval)?.unwrap_or(usual.heartbeat),
        suspect_after: group.get("suspect_after", value::interval)?.unwrap_or(usual.suspect_after),
        round_trip: group.get("round_trip", value::interval)?.unwrap_or(usual.round_trip),
        expel_slow_after: group
            .get("expel_slow_after", value::interval_or_never)?
            .unwrap_or(usual.expel_slow_after),
        ..usual
    };
    if options.suspect_after <= options.heartbeat {
        let line = group.line_of("suspect_after").or(group.line_of("heartbeat")).unwrap_or(1);
        let (heartbeat, suspect_after) = (options.heartbeat, options.suspect_after);
        return Err(Fault::new(
            line,
            format!(
                "silence of {suspect_after:?} is suspected, and heartbeats come every {heartbeat:?}: write a suspect_after of \
                 several heartbeats"
            ),
        ));
    }
    if let Some(after) = options.expel_slow_after.filter(|after| *after < 2 * options.heartbeat) {
        let line = group.line_of("expel_slow_after").or(group.line_of("heartbeat")).unwrap_or(1);
        let heartbeat = options.heartbeat;
        return Err(Fault::new(
            line,
            format!(
                "a user that takes nothing for {after:?} is expelled, and heartbeats that say what it took come every \
                 {heartbeat:?}: write an expel_slow_after of two heartbeats or more, or \"never\""
            ),
        ));
    }
    Ok(options)
}

fn of_faults(table: Table<'_>) -> Result<Faults, Fault> {
    table.allow(&FAULT_KEYS)?;
    let permille = |key| Ok(table.get(key, value::number(0..=1_000))?.unwrap_or(0) as u32);
    Ok(Faults {
        seed: table.need("seed", "1", value::number(0..=i64::MAX as u64))?,
        loss_permille: permille("loss_permille")?,
        corruption_permille: permille("corruption_permille")?,
        duplication_permille: permille("duplication_permille")?,
        reordering_permille: permille("reordering_permille")?,
        delay: table.get("delay", value::duration)?.unwrap_or_default(),
    })
}

/// Why a file makes no group.
#[derive(Debug)]
pub enum GroupFileError {
    /// It cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the kernel, or that the file is too large or no text.
        error: io::Error,
    },
    /// The text of a line makes no group.
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The fault, and what to write.
        what: String,
    },
    /// The file has no member of that name.
    Stranger {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// The names that it has.
        members: Vec<String>,
    },
}

impl fmt::Display for GroupFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                let remedy = match error.kind() {
                    io::ErrorKind::FileTooLarge => "shorten it",
                    io::ErrorKind::InvalidData => "save it as UTF-8",
                    io::ErrorKind::PermissionDenied => "name a file that this user may read",
                    _ => "name the group's file",
                };
                write!(f, "{}: {error}: {remedy}", path.display())
            }
            Self::Line { path, line, what } => write!(f, "{}:{line}: {what}", path.display()),
            Self::Stranger { path, name, members } => write!(
                f,
                "{}: {name:?} is no member: use one of {}, or add it at all members",
                path.display(),
                members.join(", ")
            ),
        }
    }
}

impl std::error::Error for GroupFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { error, .. } => Some(error),
            Self::Line { .. } | Self::Stranger { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
