//! What strangers may try, and where that it fails is tested.
//!
//! | attempt | tests |
//! | --- | --- |
//! | two subjects made to share a count | `keys::{different_parts_are_different_keys, different_tuples_are_different_keys, look_alikes_stay_apart}`, `keys::composites_of_extractors_are_the_tuples_of_their_keys` |
//! | a slot moved by braces | `names`, `keys::all_rules_of_a_subject_share_a_slot_that_braces_cannot_move` |
//! | commands or Lua inside a key | `injection`, `keys::odd_keys_keep_their_own_counts_on_every_store` |
//! | keys without end | `cardinality`, `memory_store::{keys_whose_quota_has_come_back_make_room, a_full_store_forgets_no_spent_quota_and_newcomers_share, refusals_and_peeks_leave_no_keys_behind}`, `laws::a_refusal_leaves_keys_as_they_were_and_every_key_goes_by_itself` |
//! | an address made up in a header | `headers`, `addresses`, `forged` |
//! | no identity at all | `identity`, `corners::a_doubled_header_is_nobodys`, `edge`, `applies` |
//! | measures that grow with keys | `secrets::what_observers_are_told_does_not_grow_with_keys` |
//! | many keys of one hash | `cardinality::keys_alike_take_no_longer_than_others` |
//! | secrets in keys, logs, errors | `secrets::{no_address_and_no_password_is_told, no_key_is_told}`, `credentials::a_secret_is_in_no_key_of_the_store_nor_in_logs`, `redis_store::{what_needs_an_operator_says_so_and_shows_no_secret, no_secret_reaches_the_server}`, `refusals::a_refusal_that_is_logged_has_no_secrets`, `headers::build::no_secret_is_shown` |
//! | lines forged in a log | `secrets::a_name_with_line_breaks_is_one_line_of_the_log` |
//! | routes that nobody mounted | `identity::a_layer_adds_no_routes` |
//! | numbers at the edge of what can be | `numbers`, `known_bugs::absurd_costs_can_never_fit_and_change_nothing`, `build_errors` |
//! | replies that make no sense | unit tests of `store/redis/wire.rs`, `redis_store::nonsense_is_a_failure_and_not_a_panic` |
//! | code that panics, or is unsafe | the lints in `Cargo.toml`; header values of any length: `headers::properties` |
//! | a store brought down to shut or open the door | `fault_restart::no_error_of_ours_under_open_rules`, `fault_refusals::{out_of_memory, busy_with_a_script_that_does_not_end, too_many_clients}`, `fault_hang::a_stopped_process`, `resilience::each_rule_says_what_happens` |
//! | a store brought down to be unlimited | `fault_breaker::an_outage_admits_no_more_than_its_bound`, `resilience::a_process_has_its_part_of_the_quota_as_many_as_there_are` |
//! | everybody told to come back at once | `headers::retry_after::{a_hundred_refused_together_do_not_all_come_back_together, every_extra_second_is_drawn_and_no_other}`; that refusals cost nothing: `laws::a_refusal_by_the_last_rule_spends_nothing_in_the_others` |
//! | reading the quota of another | `headers::options::{hidden_from_strangers, the_partition_key_tells_counts_apart_and_not_whose_they_are}` |
//! | a server that is another | `tls::{any_other_certificate_is_refused_before_a_word_is_said, a_server_without_tls_is_named, a_certificate_of_the_given_authority_is_trusted}` |
//! | other code under the name of ours | `functions::a_library_that_was_tampered_with_is_found_out`; scripts go by their digest, which the server works out |

mod cardinality;
mod headers;
mod identity;
mod injection;
mod names;
mod numbers;
mod secrets;

/// The tests that the table names: module and function, or the module alone.
fn named() -> Vec<(String, Option<String>)> {
    let table = include_str!("mod.rs").lines().filter(|line| line.starts_with("//! |")).skip(2);
    let words = table.flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|word| !word.contains(['/', '.']));
    words
        .flat_map(|word| match word.rsplit_once("::{").map(|(module, list)| (module, list.trim_end_matches('}'))) {
            Some((module, list)) => list.split(", ").map(|name| (module.into(), Some(name.into()))).collect(),
            None => match word.rsplit_once("::") {
                Some(("headers", module)) => vec![(format!("headers::{module}"), None)],
                Some((module, name)) => vec![(module.into(), Some(name.into()))],
                None => vec![(word.to_owned(), None)],
            },
        })
        .collect()
}

#[test]
fn every_test_that_the_table_names_is_there() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let named = named();
    assert!(named.len() > 40, "{named:?}");
    for (module, name) in named {
        let path = module.replace("::", "/");
        let places = [format!("security/{path}.rs"), format!("{path}.rs"), format!("{path}/mod.rs")];
        let text: String = places.iter().filter_map(|place| std::fs::read_to_string(folder.join(place)).ok()).collect();
        assert!(text.contains("#[test]") || text.contains("#[tokio::test"), "no tests in {module}");
        let there = name.as_ref().is_none_or(|name| text.contains(&format!("fn {name}(")));
        assert!(there, "no {name:?} in {module}");
    }
}
