//! etcd's files and wire format, natively: read, verify, restore and compact without running etcd.

#![forbid(unsafe_code)]
