//! The packages call operations by name, as `bindings/common/src/operation.rs` has them. The types of the
//! arguments in Node are made of that file. In Python each result has a type, so the names are only compared.

use syn::Item;

use super::{none, read, replace_in};

const NODE: &str = "bindings/node/src/objects.rs";
const PYTHON: &str = "bindings/python/python/permits/_permits.pyi";

/// The class of a package, and the argument of its operations.
const CLASSES: [(&str, &str); 3] = [("Client", "handle"), ("Semaphore", "argument"), ("Permit", "number")];

/// Turns `HandOver` into `hand_over`.
fn snake_case(name: &str) -> String {
    let word = |(at, letter): (usize, char)| match letter.is_ascii_uppercase() {
        true if at > 0 => format!("_{}", letter.to_ascii_lowercase()),
        _ => letter.to_ascii_lowercase().to_string(),
    };
    name.char_indices().map(word).collect()
}

fn operations(class: &str) -> Vec<String> {
    let source = syn::parse_file(&read("bindings/common/src/operation.rs")).expect("it compiles");
    let found = source.items.into_iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == format!("{class}Operation") => Some(item.variants),
        _ => None,
    });
    let variants = found.unwrap_or_else(|| panic!("{class} has no operations"));
    variants.iter().map(|variant| snake_case(&variant.ident.to_string())).collect()
}

/// The names of the operations that the class has in Python.
fn in_python(class: &str) -> Vec<String> {
    let types = read(PYTHON);
    let (_, body) = types.split_once(&format!("\nclass {class}:")).expect("it is a class");
    let body = body.split("\nclass ").next().expect("it ends");
    let literals = body.split("operation: Literal[").skip(1).filter_map(|rest| rest.split(']').next());
    literals.flat_map(|names| names.split(", ").map(|name| name.trim_matches('"').to_owned())).collect()
}

#[test]
fn the_packages_call_the_operations_by_their_names() {
    let mut made = Vec::new();
    for (class, argument) in CLASSES {
        let mut operations = operations(class);
        let names: Vec<String> = operations.iter().map(|name| format!("'{name}'")).collect();
        let (class_in_rust, end) = (format!("\nimpl {class} {{"), format!(", {argument}?: string"));
        made.push(replace_in(NODE, &[&class_in_rust, "\"operation: "], &end, &names.join(" | ")));
        let mut python = in_python(class);
        operations.sort();
        python.sort();
        assert_eq!(python, operations, "{class} in {PYTHON}");
    }
    none(made.into_iter().flatten());
}
