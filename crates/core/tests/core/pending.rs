//! What the two decision tables ask for and nobody does yet, in one place.

/// Rows of the starting member's table that are decided and tested, but need a ticket that nobody hands out yet.
const STARTING_MEMBER: &[(u32, &str)] = &[(7, "without a copy nothing starts; the restore comes with backups")];

#[test]
fn every_row_of_the_operators_table_is_tested() {
    let tests = include_str!("operator_table.rs");
    for row in 1..=13 {
        assert!(tests.contains(&format!("\nfn row_{row:02}_")), "row {row}");
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
        let rules = include_str!("../../src/rules/tickets.rs");
        assert!(!rules.contains("Ticket::Restore {"), "row {row}: {why}");
    }
}
