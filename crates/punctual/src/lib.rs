//! Messages between components, processes and hosts in microseconds.
#![forbid(unsafe_code)]
