//! Users, roles and tokens.

use super::channel::Client;
use super::error::ClientError;
use crate::pb::auth::Permission;
use crate::pb::rpc::auth::{
    AuthStatusResponse, AuthenticateRequest, AuthenticateResponse, NameRequest, NamesResponse, RoleGetResponse,
    RoleGrantPermissionRequest, RoleRevokePermissionRequest, UserAddRequest, UserChangePasswordRequest,
    UserRoleRequest,
};
use crate::pb::rpc::{Empty, HeaderOnly};

impl Client {
    /// Logs in and returns a client that speaks for this user.
    pub async fn authenticate(&self, name: &str, password: &str) -> Result<Self, ClientError> {
        let request = AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
        let answer: AuthenticateResponse = self.call("/etcdserverpb.Auth/Authenticate", request).await?;
        self.with_token(&answer.token)
    }

    pub async fn auth_status(&self) -> Result<AuthStatusResponse, ClientError> {
        self.call("/etcdserverpb.Auth/AuthStatus", Empty {}).await
    }

    pub async fn auth_enable(&self) -> Result<HeaderOnly, ClientError> {
        self.call("/etcdserverpb.Auth/AuthEnable", Empty {}).await
    }

    pub async fn auth_disable(&self) -> Result<HeaderOnly, ClientError> {
        self.call("/etcdserverpb.Auth/AuthDisable", Empty {}).await
    }

    pub async fn user_add(&self, request: UserAddRequest) -> Result<HeaderOnly, ClientError> {
        self.call("/etcdserverpb.Auth/UserAdd", request).await
    }

    pub async fn user_change_password(&self, request: UserChangePasswordRequest) -> Result<HeaderOnly, ClientError> {
        self.call("/etcdserverpb.Auth/UserChangePassword", request).await
    }

    pub async fn user_delete(&self, name: &str) -> Result<HeaderOnly, ClientError> {
        self.call("/etcdserverpb.Auth/UserDelete", NameRequest { name: name.to_owned() }).await
    }

    /// The user's roles.
    pub async fn user_get(&self, name: &str) -> Result<NamesResponse, ClientError> {
        self.call("/etcdserverpb.Auth/UserGet", NameRequest { name: name.to_owned() }).await
    }

    pub async fn user_list(&self) -> Result<NamesResponse, ClientError> {
        self.call("/etcdserverpb.Auth/UserList", Empty {}).await
    }

    pub async fn user_grant_role(&self, user: &str, role: &str) -> Result<HeaderOnly, ClientError> {
        self.call("/etcdserverpb.Auth/UserGrantRole", UserRoleRequest { user: user.to_owned(), role: role.to_owned() })
            .await
    }

    pub async fn user_revoke_role(&self, user: &str, role: &str) -> Result<HeaderOnly, ClientError> {
        self.call("/etcdserverpb.Auth/UserRevokeRole", UserRoleRequest { user: user.to_owned(), role: role.to_owned() })
            .await
    }

    pub async fn role_add(&self, name: &str) -> Result<HeaderOnly, ClientError> {
        self.call("/etcdserverpb.Auth/RoleAdd", NameRequest { name: name.to_owned() }).await
    }

    pub async fn role_get(&self, role: &str) -> Result<RoleGetResponse, ClientError> {
        self.call("/etcdserverpb.Auth/RoleGet", NameRequest { name: role.to_owned() }).await
    }

    pub async fn role_list(&self) -> Result<NamesResponse, ClientError> {
        self.call("/etcdserverpb.Auth/RoleList", Empty {}).await
    }

    pub async fn role_delete(&self, role: &str) -> Result<HeaderOnly, ClientError> {
        self.call("/etcdserverpb.Auth/RoleDelete", NameRequest { name: role.to_owned() }).await
    }

    pub async fn role_grant_permission(&self, role: &str, permission: Permission) -> Result<HeaderOnly, ClientError> {
        let request = RoleGrantPermissionRequest { name: role.to_owned(), perm: Some(permission) };
        self.call("/etcdserverpb.Auth/RoleGrantPermission", request).await
    }

    pub async fn role_revoke_permission(
        &self,
        request: RoleRevokePermissionRequest,
    ) -> Result<HeaderOnly, ClientError> {
        self.call("/etcdserverpb.Auth/RoleRevokePermission", request).await
    }
}
