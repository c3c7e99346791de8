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
//! | many keys of one hash | `cardinality::keys_alike_take_no_longer_than_others` |
//! | secrets in keys, logs, errors | `secrets`, `credentials::a_secret_is_in_no_key_of_the_store_nor_in_logs`, `redis_store::{what_needs_an_operator_says_so_and_shows_no_secret, no_secret_reaches_the_server}`, `refusals::a_refusal_that_is_logged_has_no_secrets`, `headers::build::no_secret_is_shown` |
//! | lines forged in a log | `secrets::a_name_with_line_breaks_is_one_line_of_the_log` |
//! | routes that nobody mounted | `identity::a_layer_adds_no_routes` |
//! | numbers at the edge of what can be | `numbers`, `known_bugs::absurd_costs_can_never_fit_and_change_nothing`, `build_errors` |
//! | replies that make no sense | unit tests of `store/redis/wire.rs`, `redis_store::nonsense_is_a_failure_and_not_a_panic` |
//! | a store brought down to shut or open the door | `fault_restart::no_error_of_ours_under_open_rules`, `fault_refusals` |
//! | everybody told to come back at once | `headers::retry_after::{a_hundred_refused_together_do_not_all_come_back_together, every_extra_second_is_drawn_and_no_other}`; that refusals cost nothing: `laws::a_refusal_by_the_last_rule_spends_nothing_in_the_others` |
//! | reading the quota of another | `headers::options::{hidden_from_strangers, the_partition_key_tells_counts_apart_and_not_whose_they_are}` |

mod cardinality;
mod headers;
mod identity;
mod injection;
mod names;
mod numbers;
mod secrets;
