//! The meaning of a field of an inspection is written once, as the first paragraph of its documentation in
//! Rust. The schema of `permits status` is made of it, and the types of Python and Node are made of the
//! schema: the test `inspections` of permits-testkit writes these types.

use super::changes::{fields, renamed};
use super::errors::without_links;
use super::{none, replace_in};

const OF_INSPECTION: &str = "crates/permits/src/inspection.rs";
const OF_REPLY: &str = "crates/permits-core/src/protocol/reply.rs";
const OF_CHANGE: &str = "crates/permits-core/src/protocol/change.rs";

/// The structs, and the field of the schema in which each of them is.
const STRUCTS: [(&str, &str, &str); 8] = [
    (OF_INSPECTION, "Inspection", ""),
    (OF_REPLY, "Counts", ""),
    (OF_INSPECTION, "HolderInfo", "holders"),
    (OF_INSPECTION, "WaiterInfo", "waiters"),
    (OF_INSPECTION, "LaneInfo", "lanes"),
    (OF_INSPECTION, "ChangeInfo", "changes"),
    (OF_REPLY, "Waits", "waits"),
    (OF_CHANGE, "Alert", "alert"),
];

/// The sentence of a field as JSON has it: times are numbers, and nothing is null.
fn in_json(name: &str, text: &str) -> String {
    let unit = match name {
        "at_ms" => ", in milliseconds since 1970",
        name if name.ends_with("_ms") => ", in milliseconds",
        _ => "",
    };
    let text = renamed(&without_links(text), str::to_owned).replace("`None`", "null");
    let (first, rest) = text.split_at(text.find([',', ';', '.']).unwrap_or(text.len()));
    format!("{first}{unit}{rest}").trim_end_matches('.').to_owned()
}

#[test]
fn the_schema_of_an_inspection_has_the_sentences_of_the_library() {
    let described = STRUCTS.into_iter().flat_map(|(file, of, within)| {
        let (_, fields) = fields(file, of).remove(0);
        let fields = fields.into_iter().filter(|(name, _)| name != "counts");
        fields.map(move |(name, text)| {
            assert!(!text.is_empty(), "{of}::{name} has no documentation");
            // The properties of an object in the field, or of the objects in a list.
            let (outer, indent) = match within {
                "" => ("{".to_owned(), 4),
                "waits" | "alert" => (format!("\n    \"{within}\": {{"), 8),
                _ => (format!("\n    \"{within}\": {{"), 10),
            };
            let item = format!("\n{:indent$}\"{name}\": {{", "");
            let path = [&*outer, &*item, "\"description\": \""];
            replace_in("docs/reference/status.schema.json", &path, "\"", &in_json(&name, &text))
        })
    });
    none(described.flatten());
}
