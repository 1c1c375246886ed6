//! Names, holders, prefixes, handles and keys: an accepted text survives each form that it is put into.

use permits::PermitHandle;
use permits_core::protocol::{Holder, Name, RequestId, check_prefix};
use permits_redis::testing::{keys_of, name_of_state};
use proptest::collection::vec;
use proptest::prelude::*;

use super::SEEDS;
use super::damage::{changes, damaged, damaged_text};
use super::run::cases;

/// Any text, and texts that are nearly names.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[ -~]{0,210}", "[%{}:a-fA-F0-9é\u{0}-\u{3}]{0,30}", "\\PC{0,80}"]
}

#[test]
fn a_name_survives_its_keys() {
    let strategy = (texts(), texts());
    cases(1_000, SEEDS, &strategy, |(text, prefix)| {
        let Ok(name) = Name::new(text) else { return Ok(()) };
        let prefix = if check_prefix(prefix).is_ok() { prefix.as_str() } else { "permits" };
        let keys = keys_of(prefix, &name);
        if name_of_state(prefix, keys[0].as_bytes()) != Some(name) {
            return Err(format!("{keys:?}"));
        }
        // All in one hash slot, which the text between the first { and the next } decides.
        let tag = |key: &str| Some(key.split_once('{')?.1.split_once('}')?.0.to_owned());
        let first = tag(&keys[0]);
        let one_tag =
            first.as_deref().is_some_and(|tag| !tag.is_empty()) && keys.iter().all(|key| tag(key) == first);
        if one_tag { Ok(()) } else { Err(format!("not in one slot: {keys:?}")) }
    });
}

#[test]
fn any_key_has_one_owner_or_none() {
    let keys = (vec(any::<u8>(), 0..40), texts(), changes());
    cases(1_000, SEEDS, &keys, |(bytes, text, changes)| {
        let mut all = vec![bytes.clone()];
        if let Ok(name) = Name::new(text) {
            all.push(damaged(keys_of("permits", &name)[0].as_bytes(), changes));
        }
        for key in all {
            let Some(name) = name_of_state("permits", &key) else { continue };
            if keys_of("permits", &name)[0].as_bytes() != key {
                return Err(format!("{key:?} is not the key of {name:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn an_accepted_handle_prints_as_it_was_read() {
    let numbers = (any::<u32>(), 0_u64..100_000_000, any::<u64>(), any::<u32>());
    let strategy = (texts(), texts(), texts(), numbers, changes());
    cases(1_000, SEEDS, &strategy, |(name, holder, request, (weight, lease, token, slot), changes)| {
        let escaped = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let request = if RequestId::new(request).is_ok() { request } else { "session.1" };
        let (name_text, holder_text) = (escaped(name), escaped(holder));
        let text = format!("permits11:{name_text}:{holder_text}:{request}:{weight}:{lease}:{token}:{slot}");
        let is_valid =
            Name::new(name).is_ok() && Holder::new(holder).is_ok() && (100..=86_400_000).contains(lease);
        let parsed: Result<PermitHandle, _> = text.parse();
        if parsed.is_ok() != is_valid {
            return Err(format!("{text}: {parsed:?}"));
        }
        if parsed.is_ok_and(|handle| handle.semaphore() != name || handle.holder() != holder) {
            return Err(format!("{text} names others"));
        }
        let Ok(handle) = damaged_text(&text, changes).parse::<PermitHandle>() else { return Ok(()) };
        let again = handle.to_string();
        if again.parse() == Ok(handle) && again.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(())
        } else {
            Err(again)
        }
    });
}
