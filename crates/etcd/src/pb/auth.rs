//! `authpb`: the values of buckets `authUsers` and `authRoles`.

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct UserAddOptions {
    #[prost(bool, tag = "1")]
    pub no_password: bool,
}

/// A user; `password` is a bcrypt hash.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct User {
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub password: Vec<u8>,
    #[prost(string, repeated, tag = "3")]
    pub roles: Vec<String>,
    #[prost(message, optional, tag = "4")]
    pub options: Option<UserAddOptions>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum PermissionType {
    Read = 0,
    Write = 1,
    ReadWrite = 2,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Permission {
    #[prost(enumeration = "PermissionType", tag = "1")]
    pub perm_type: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Role {
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub key_permission: Vec<Permission>,
}
