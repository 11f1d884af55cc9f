//! How large the database may get on its volume.
//!
//! A volume holds more than the database, and a volume that is full cannot be repaired: etcd needs room even to start. So the
//! quota leaves room for the rest, and the one that nobody chose leaves room for a second copy of the database too, which
//! defragmentation and a snapshot from the leader write.

use serde_json::json;

use crate::defaults::{BESIDE_DATABASE, LARGEST_DEFAULT_QUOTA, VOLUME_SIZE};
use crate::schema::quoted;
use crate::storage;

/// Largest quota on a volume of so many bytes.
pub fn largest(volume: i64) -> i64 {
    volume.saturating_sub(BESIDE_DATABASE).max(0)
}

/// The quota of a cluster that states none, on a volume of so many bytes. `None` is storage without a limit.
// Derived anew in each pass: with another rule here, running clusters would get another quota.
pub fn default(volume: Option<i64>) -> i64 {
    volume.map_or(LARGEST_DEFAULT_QUOTA, |volume| (largest(volume) / 2).min(LARGEST_DEFAULT_QUOTA))
}

/// Why a quota is too large for storage of this size. Reads on after "spec.etcd.quota is 8Gi: ".
pub fn too_large(size: &str) -> String {
    format!("must leave {}Mi of {size} of storage to the log and to repairs", BESIDE_DATABASE >> 20)
}

/// The same rule, for the schema of the spec.
pub(crate) fn add_rule(schema: &mut schemars::Schema) {
    let size = storage::size_text("self.storage");
    let beside = BESIDE_DATABASE >> 20;
    let message = format!("spec.etcd.quota {}", too_large("the"));
    let rule = format!(
        "!has(self.etcd.quota) || !isQuantity(self.etcd.quota) || !isQuantity({size}) || \
         quantity(self.etcd.quota).add(quantity('{beside}Mi')).compareTo(quantity({size})) <= 0"
    );
    // The API server reckons with texts without end where it cannot tell their length, and refuses the rule: so each text
    // is a field that has a bound, and nothing is added to what a choice or a conversion gives.
    let with = |size: &str| {
        let text = quoted(&too_large("SIZE")).replace("SIZE", &format!("' + {size} + '"));
        format!("'spec.etcd.quota is ' + self.etcd.quota + ': ' + {text}")
    };
    let figures = format!(
        "has(self.storage.ephemeral) ? {} : has(self.storage.volumeClaimTemplate) ? {} : {}",
        with("self.storage.ephemeral.sizeLimit"),
        with("self.storage.volumeClaimTemplate.size"),
        with(&quoted(VOLUME_SIZE))
    );
    let rule = json!({ "rule": rule, "message": message, "messageExpression": figures, "fieldPath": ".etcd.quota" });
    crate::schema::push_rules(schema, vec![rule]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIBIBYTE: i64 = 1 << 30;

    #[test]
    fn the_default_leaves_room_for_a_copy_and_for_the_rest_and_is_never_above_eight_gibibytes() {
        assert_eq!(default(Some(20 * GIBIBYTE)), 8 * GIBIBYTE);
        assert_eq!(default(Some(GIBIBYTE)), GIBIBYTE / 4);
        assert_eq!(default(None), 8 * GIBIBYTE);
        for volume in (1..100).map(|size| size * GIBIBYTE) {
            assert!(2 * default(Some(volume)) + BESIDE_DATABASE <= volume, "{volume}");
        }
    }
}
