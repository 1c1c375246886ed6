//! Keys that another program has written.

use permits::store::StoreError;

use crate::fixture::{Both, acquire, every_operation};

#[test]
fn a_key_of_another_program_is_left_alone() {
    let mut both = Both::start();
    for key in both.keys.clone() {
        both.call(&["SET", &key, "not ours"]);
        for operation in every_operation() {
            let error = both.execute(&operation).expect_err("the key is not ours");
            assert!(matches!(error, StoreError::WrongType { .. }), "{key}, {operation:?}: {error:?}");
            assert_eq!(both.call(&["GET", &key]).text(), "not ours");
            assert_eq!(both.call(&["DBSIZE"]).int(), 2, "{key} and the fixed clock");
        }
        both.call(&["DEL", &key]);
    }
    both.same(&acquire(&["a"]));
}

/// The last key, the free slots, is an exception: only a command that takes or frees a slot reads it, maybe after other
/// writes. To check it in every command would cost more than it protects.
#[test]
fn a_key_overwritten_by_another_program_stops_everything_that_needs_it() {
    for number in 1..4 {
        let mut both = Both::full();
        let key = both.keys[number].clone();
        let others: Vec<String> = both.keys.iter().filter(|other| **other != key).cloned().collect();
        both.call(&["DEL", &key]);
        both.call(&["SET", &key, "not ours"]);
        let dump = |both: &mut Both| {
            others
                .iter()
                .map(|key| both.connection.call(&["DUMP", key]).expect("it runs"))
                .collect::<Vec<_>>()
        };
        for operation in every_operation() {
            let before = dump(&mut both);
            match both.execute(&operation) {
                Err(StoreError::WrongType { .. }) => {
                    assert_eq!(dump(&mut both), before, "{key}, {operation:?}: failed, and wrote something");
                }
                Err(error) => panic!("{key}, {operation:?}: {error:?}"),
                // It does not need that key.
                Ok(_) => {}
            }
            assert_eq!(both.call(&["GET", &key]).text(), "not ours");
        }
    }
}
