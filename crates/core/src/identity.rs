//! Who a cluster is: checked once, and whole from there on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Namespace, name and UID of an EtcdCluster. None of them is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterIdentity {
    namespace: String,
    name: String,
    uid: String,
}

/// The API server never hands out such an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the EtcdCluster {name:?} has no {missing}; it was not read from an API server")]
pub struct IncompleteIdentity {
    name: String,
    missing: &'static str,
}

impl ClusterIdentity {
    pub fn of(metadata: &ObjectMeta) -> Result<Self, IncompleteIdentity> {
        let part = |value: &Option<String>, missing: &'static str| {
            let name = metadata.name.clone().unwrap_or_default();
            value.clone().filter(|text| !text.is_empty()).ok_or(IncompleteIdentity { name, missing })
        };
        Ok(Self {
            namespace: part(&metadata.namespace, "namespace")?,
            name: part(&metadata.name, "name")?,
            uid: part(&metadata.uid, "UID")?,
        })
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Whether this is the very object, and not another one of the same name.
    pub fn is(&self, metadata: &ObjectMeta) -> bool {
        metadata.uid.as_deref() == Some(&self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_without_all_three_has_no_identity() {
        let whole = ObjectMeta {
            namespace: Some("default".to_owned()),
            name: Some("etcd".to_owned()),
            uid: Some("u".to_owned()),
            ..ObjectMeta::default()
        };
        assert_eq!(ClusterIdentity::of(&whole).unwrap().uid(), "u");
        for (missing, part) in [
            ("namespace", ObjectMeta { namespace: None, ..whole.clone() }),
            ("UID", ObjectMeta { uid: Some(String::new()), ..whole.clone() }),
            ("name", ObjectMeta { name: None, ..whole }),
        ] {
            let error = ClusterIdentity::of(&part).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }
}
