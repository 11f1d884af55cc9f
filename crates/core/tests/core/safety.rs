//! Random histories: what must never happen, and that everything settles once the faults stop.
//!
//! Every history runs in a world whose operator sees through caches that lag, each by its own measure, reads what it is
//! asked to, and acts when it may be too late.

mod events;
mod forming;
mod history;
mod members;
mod pace;
mod places;
mod recovery;
mod volumes;
