//! Punctual for Python: the module `punctual._punctual`, which `python/punctual/__init__.py` shows.
//!
//! Every thread may use an object that a node opens, one thread at a time: a second one gets an error. A waiting thread releases the
//! interpreter's lock, and checks for signals ten times a second.

mod buffer;
mod bus;
mod communicator;
mod error;
mod held;
mod interest;
mod message;
mod node;
mod publication;

use pyo3::prelude::*;

// Buffers are read and written under that lock (`buffer.rs`): an interpreter that can do without a lock turns it on for this module. If it was
// told not to, `__init__.py` refuses.
#[pymodule(gil_used = true)]
fn _punctual(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<bus::Bus>()?;
    module.add_class::<node::Node>()?;
    module.add_class::<communicator::Communicator>()?;
    module.add_class::<publication::Publication>()?;
    module.add_class::<publication::Subscription>()?;
    module.add_class::<interest::Topic>()?;
    module.add_class::<interest::Publisher>()?;
    module.add_class::<interest::Subscriber>()?;
    module.add_class::<interest::Due>()?;
    module.add_class::<interest::Response>()?;
    module.add_class::<message::Target>()?;
    module.add_class::<message::Message>()?;
    module.add_function(wrap_pyfunction!(node::read_all, module)?)?;
    error::add(module)
}
