//! What the operator sends to the API server, checked against scripted answers, and what it ships.

#![cfg(test)]

mod install;
mod nodes;
mod requests;
mod script;
