//! Service `Auth`.

use super::ResponseHeader;
use crate::pb::auth::{Permission, UserAddOptions};

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AuthStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub enabled: bool,
    #[prost(uint64, tag = "3")]
    pub auth_revision: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AuthenticateResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub token: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserAddRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
    #[prost(message, optional, tag = "3")]
    pub options: Option<UserAddOptions>,
    #[prost(string, tag = "4")]
    pub hashed_password: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserChangePasswordRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
    #[prost(string, tag = "3")]
    pub hashed_password: String,
}

/// Names one user or one role.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NameRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A role given to or taken from a user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserRoleRequest {
    #[prost(string, tag = "1")]
    pub user: String,
    #[prost(string, tag = "2")]
    pub role: String,
}

/// Names of users or roles.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NamesResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, repeated, tag = "2")]
    pub names: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RoleGrantPermissionRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub perm: Option<Permission>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RoleRevokePermissionRequest {
    #[prost(string, tag = "1")]
    pub role: String,
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RoleGetResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub perm: Vec<Permission>,
}
