//! Punctual for C and C++: the declarations of `include/punctual.h`, over the library.
//!
//! The mistake this wall makes impossible: a wrong handle, thread, size or pointer of a foreign program that becomes undefined
//! behaviour in ours, as far as a library can see it.
//!
//! Rules for pointers, which SAFETY comments cite:
//! 1. A pointer that is not null leads to as many bytes as the header says, or to text that ends with a zero byte. They stay there
//!    until the call returns, and no other thread writes to them meanwhile.
//! 2. Null is an error, but where the header allows it. So are a size that no object has, and a struct that is not aligned.
//! 3. No pointer is kept when a call returns, and none into the library's memory is given away but to text that stays.
//!
//! Handles are numbers (`punctual_machine::handles`): nothing is followed that a program could make up. No panic leaves a function.
#![expect(non_camel_case_types, reason = "types have the names that C has")]

mod bus;
mod communicator;
mod entry;
mod handle;
mod interest;
mod message;
mod node;
mod number;
mod outcome;
mod pointer;
mod publication;
mod publisher;
mod subscriber;
mod subscription;

pub use bus::*;
pub use communicator::*;
pub use handle::*;
pub use interest::*;
pub use message::*;
pub use node::*;
pub use number::*;
pub use outcome::{
    punctual_error, punctual_error_name, punctual_error_text, punctual_last_error, punctual_version,
};
pub use publication::*;
pub use publisher::*;
pub use subscriber::*;
pub use subscription::*;
