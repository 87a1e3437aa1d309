//! A bus over Zenoh's routers: nodes of many sites, each connected to a router of its own.
//!
//! Zenoh moves frames. Check values, seals, stages and accounts are the bus's own, from end to end; the routers' time is *medium*.
#![forbid(unsafe_code)]

mod medium;
pub mod place;
pub mod rig;
pub mod scene;
pub mod told;

pub use medium::ZenohBus;

use zenoh::Wait;

/// An error of Zenoh as text, with its subject.
pub(crate) fn words(what: &str, error: &dyn std::fmt::Display) -> String {
    format!("Zenoh: {what}: {error}")
}

/// A session as a router that listens there and connects to others.
///
/// # Errors
/// Zenoh's error, in words.
pub fn router(listen: &[String], connect: &[String]) -> Result<zenoh::Session, String> {
    let mut config = zenoh::Config::default();
    let mut set = |key: &str, value: String| {
        config.insert_json5(key, &value).map_err(|error| words(&format!("{key} {value}"), &error))
    };
    set("mode", r#""router""#.to_owned())?;
    set("scouting/multicast/enabled", "false".to_owned())?;
    set("listen/endpoints", format!("{listen:?}"))?;
    set("connect/endpoints", format!("{connect:?}"))?;
    zenoh::open(config).wait().map_err(|error| words("no router", &error))
}
