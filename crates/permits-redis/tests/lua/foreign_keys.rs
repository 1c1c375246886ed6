//! Keys that another program has written.

use permits_store::StoreError;

use crate::fixture::{Both, Scene, acquire, every_operation};

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

/// A fingerprint of a key's contents. DUMP has the fields of a hash in any order.
const CONTENTS: &str = "
local hash = redis.call('TYPE', KEYS[1]).ok == 'hash'
local all = hash and redis.call('HGETALL', KEYS[1]) or redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
local pairs = {}
for i = 1, #all, 2 do pairs[#pairs + 1] = redis.sha1hex(all[i]) .. redis.sha1hex(all[i + 1]) end
table.sort(pairs)
return redis.sha1hex(table.concat(pairs))
";

/// The last key, the free slots, is an exception: only a command that takes or frees a slot reads it, maybe
/// after other writes. To check it in every command would cost more than it protects.
#[test]
fn a_key_overwritten_by_another_program_stops_everything_that_needs_it() {
    let numbers = [0, 1, 2].into_iter().flat_map(|number| Scene::ALL.map(|scene| (number, scene)));
    for (number, scene) in numbers {
        let mut both = Both::in_scene(scene);
        let key = both.keys[number].clone();
        let others: Vec<String> = both.keys.iter().filter(|other| **other != key).cloned().collect();
        both.call(&["DEL", &key]);
        both.call(&["SET", &key, "not ours"]);
        let dump = |both: &mut Both| {
            others.iter().map(|key| both.call(&["EVAL", CONTENTS, "1", key])).collect::<Vec<_>>()
        };
        for operation in every_operation() {
            let before = dump(&mut both);
            match both.execute(&operation) {
                Err(StoreError::WrongType { .. }) => {
                    assert_eq!(dump(&mut both), before, "{key}, {operation:?}: failed, and wrote something");
                }
                Err(error) => panic!("{key}, {operation:?}: {error:?}"),
                // The operation does not need that key.
                Ok(_) => {}
            }
            assert_eq!(both.call(&["GET", &key]).text(), "not ours");
        }
    }
}
