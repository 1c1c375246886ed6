//! States and entries that this version does not read: of another layout, or damaged.

use permits_core::protocol::{Answers, DeleteOutcome, Operation};
use permits_store::StoreError;
use permits_testkit::Resp;

use crate::fixture::{Both, Scene, every_operation};

const USED: [Scene; 3] = [Scene::Used, Scene::Full, Scene::Lined];

/// Adds ARGV[1] to the layout of the state, and ARGV[2] to the layout of each entry.
const OTHER_LAYOUT: &str = "
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local added = all[i] == '\\tstate' and ARGV[1] or 16 * ARGV[2]
  redis.call('HSET', KEYS[1], all[i], string.char(string.byte(all[i + 1]) + added) .. string.sub(all[i + 1], 2))
end";

/// Cuts the value of field ARGV[1] to ARGV[2] bytes.
const CUT: &str = "
redis.call('HSET', KEYS[1], ARGV[1], string.sub(redis.call('HGET', KEYS[1], ARGV[1]), 1, ARGV[2]))";

impl Both {
    /// The contents of all keys.
    fn contents(&mut self) -> Vec<Resp> {
        let keys = self.keys.clone();
        let range = &["ZRANGE", "0", "-1"][..];
        let read = [&["HGETALL"][..], range, range, range, range];
        let all = keys.iter().zip(read);
        all.map(|(key, read)| self.call(&[&read[..1], &[key], &read[1..]].concat())).collect()
    }

    fn is_deleted_as_unreadable(&mut self) {
        let deleted = self.execute(&Operation::Delete { unreadable: true }).expect("it may be deleted");
        assert_eq!(deleted.answers, Answers::Delete(DeleteOutcome::Deleted));
        assert_eq!(self.call(&["DBSIZE"]).int(), 1, "the fixed clock alone");
    }
}

#[test]
fn what_another_layout_has_written_is_left_alone() {
    for scene in USED {
        let mut both = Both::in_scene(scene);
        let state = both.keys[0].clone();
        both.call(&["EVAL", OTHER_LAYOUT, "1", &state, "4", "4"]);
        let before = both.contents();
        for operation in every_operation() {
            match both.execute(&operation) {
                Err(StoreError::OtherLayout { found: 15, supported: 11, what }) => {
                    assert!(what.contains("exports"))
                }
                other => panic!("{scene:?}, {operation:?}: {other:?}"),
            }
            assert_eq!(both.contents(), before, "{scene:?}, {operation:?}");
        }
        both.is_deleted_as_unreadable();
    }
}

#[test]
fn entries_of_another_layout_are_not_taken_for_this_one() {
    for scene in USED {
        let mut both = Both::in_scene(scene);
        let state = both.keys[0].clone();
        both.call(&["EVAL", OTHER_LAYOUT, "1", &state, "0", "4"]);
        for operation in every_operation() {
            if let Err(error) = both.execute(&operation) {
                assert!(
                    matches!(error, StoreError::OtherLayout { found: 15, .. }),
                    "{operation:?}: {error:?}"
                );
            }
        }
        both.is_deleted_as_unreadable();
    }
}

#[test]
fn a_state_that_is_damaged_is_left_alone_until_it_is_deleted() {
    for (scene, bytes) in
        USED.into_iter().flat_map(|scene| ["0", "1", "100", "177"].map(|bytes| (scene, bytes)))
    {
        let mut both = Both::in_scene(scene);
        let state = both.keys[0].clone();
        both.call(&["EVAL", CUT, "1", &state, "\tstate", bytes]);
        let before = both.contents();
        for operation in every_operation() {
            let error = both.execute(&operation).expect_err("it cannot be read");
            let told =
                matches!(error, StoreError::Unreadable { .. } | StoreError::OtherLayout { found: 0, .. });
            assert!(told, "{bytes} bytes, {operation:?}: {error:?}");
            assert_eq!(both.contents(), before, "{bytes} bytes, {operation:?}");
        }
        both.is_deleted_as_unreadable();
    }
}

#[test]
fn a_damaged_entry_is_an_error_of_its_own() {
    let damages = ["a", "c"].into_iter().flat_map(|holder| ["0", "1", "10"].map(|bytes| (holder, bytes)));
    for (holder, bytes) in damages {
        let mut told = 0;
        for operation in every_operation() {
            let mut both = Both::in_scene(Scene::Full);
            let state = both.keys[0].clone();
            both.call(&["EVAL", CUT, "1", &state, holder, bytes]);
            match both.execute(&operation) {
                Err(StoreError::Unreadable { .. } | StoreError::OtherLayout { found: 0, .. }) => told += 1,
                Err(error) => panic!("{bytes} bytes of {holder}, {operation:?}: {error:?}"),
                // The operation does not need the entry.
                Ok(_) => {}
            }
            both.is_deleted_as_unreadable();
        }
        assert!(told > 0, "{bytes} bytes of {holder}");
    }
}
