//! The kinds of object that the operator applies.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quorate_api::EtcdMember;
use serde::Serialize;

use crate::shared::Shared;

macro_rules! objects {
    ($($kind:ident),* $(,)?) => {
        /// Kind of an owned object, in the order in which they are made: what others need comes first.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Kind { $($kind,)* }

        /// An owned object, as it is or as it should be.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Object { $($kind(Shared<$kind>),)* }

        impl Object {
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }

            pub fn metadata(&self) -> &ObjectMeta {
                match self { $(Self::$kind(object) => &object.metadata,)* }
            }

            pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
                match self { $(Self::$kind(object) => &mut object.metadata,)* }
            }
        }

        $(impl From<$kind> for Object {
            fn from(object: $kind) -> Self {
                Self::$kind(object.into())
            }
        })*
    };
}

objects!(ServiceAccount, Role, RoleBinding, Service, Lease, EtcdMember, StatefulSet, PodDisruptionBudget);

/// Kind and name. The namespace is always that of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ObjectKey {
    pub kind: Kind,
    pub name: String,
}

impl ObjectKey {
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.kind, self.name)
    }
}

impl Object {
    pub fn key(&self) -> ObjectKey {
        ObjectKey { kind: self.kind(), name: self.name().to_owned() }
    }

    pub fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// UID of the controller that owns it.
    pub fn owner_uid(&self) -> Option<&str> {
        let owners = self.metadata().owner_references.as_deref().unwrap_or_default();
        owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
    }

    pub fn is_terminating(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }
}
