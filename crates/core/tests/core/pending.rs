//! What the two decision tables ask for and nobody does yet, in one place.

/// Rows of the operator's table, and what is done instead.
const OPERATOR: &[(u32, &str)] = &[
    (10, "the loss of quorum is stated; a new epoch from the best surviving copy comes with quorum recovery"),
    (11, "a change of spec.replicas is refused at admission"),
    (12, "a change of spec.replicas is refused at admission"),
];

/// Rows of the starting member's table that are decided and tested, but need a ticket that nobody hands out yet.
const STARTING_MEMBER: &[(u32, &str)] = &[
    (4, "the member waits and is named in the status; joining again comes with the replacement of members"),
    (5, "the member waits and is named in the status; joining again comes with the replacement of members"),
    (7, "nothing starts; the restore comes with quorum recovery"),
    (8, "nothing starts; joining again comes with quorum recovery"),
];

#[test]
fn every_row_of_the_operators_table_is_tested_or_listed_as_pending() {
    let tests = include_str!("operator_table.rs");
    for row in 1..=13 {
        let is_tested = tests.contains(&format!("\nfn row_{row:02}_"));
        let is_pending = OPERATOR.iter().any(|(pending, why)| *pending == row && !why.is_empty());
        assert!(is_tested != is_pending, "row {row}: tested {is_tested}, pending {is_pending}");
    }
}

#[test]
fn every_row_of_the_starting_members_table_is_tested() {
    let tests = include_str!("start_table.rs");
    for row in 1..=8 {
        assert!(tests.contains(&format!("\nfn row_{row}_")), "row {row}");
    }
    for (row, why) in STARTING_MEMBER {
        // Whoever hands out such tickets takes the row off the list.
        let rules = include_str!("../../src/rules/bootstrap.rs");
        assert!(!rules.contains("Ticket::Join {") && !rules.contains("Ticket::Restore {"), "row {row}: {why}");
    }
}
