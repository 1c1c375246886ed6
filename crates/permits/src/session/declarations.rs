//! The limits that a session declares: each once, however many handles of a semaphore the program makes.
//!
//! A program may make a handle for each request. If each of them declared its limit, two versions of a
//! program that run side by side would set the limit back and forth.

use std::sync::{Arc, Mutex, PoisonError};

use super::Map;
use super::spec::LimitDeclaration;
use crate::protocol::{Declaration, Name};

/// The number of semaphores from which on all are forgotten: new handles declare again.
const DECLARATIONS_MAX: usize = 10_000;

/// The last declaration of each semaphore.
#[derive(Debug, Default)]
pub(super) struct Declarations(Mutex<Map<Name, Arc<LimitDeclaration>>>);

impl Declarations {
    /// The declaration that a new handle shares with the last one of the semaphore, if both declare the same.
    pub(super) fn shared(&self, semaphore: &Name, first: Declaration) -> Arc<LimitDeclaration> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(declared) = last.get(semaphore).filter(|declared| declared.first() == first) {
            return declared.clone();
        }
        if last.len() == DECLARATIONS_MAX {
            last.clear();
        }
        let declared = Arc::new(LimitDeclaration::new(first));
        last.insert(semaphore.clone(), declared.clone());
        declared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(number: usize) -> Name {
        Name::new(&number.to_string()).expect("it is valid")
    }

    #[test]
    fn handles_share_the_last_declaration_of_their_semaphore() {
        let declarations = Declarations::default();
        let declare = |limit| declarations.shared(&named(0), Declaration::Declare(limit));
        let first = declare(2);
        assert!(Arc::ptr_eq(&first, &declare(2)));
        let other = declare(3);
        assert!(!Arc::ptr_eq(&first, &other) && Arc::ptr_eq(&other, &declare(3)));
        assert!(!Arc::ptr_eq(&first, &declare(2)), "a program that goes back declares again");
        assert!(!Arc::ptr_eq(&other, &declarations.shared(&named(1), Declaration::Declare(3))));
    }

    #[test]
    fn so_many_declarations_are_kept_and_no_more() {
        let declarations = Declarations::default();
        let declare = |number| declarations.shared(&named(number), Declaration::Declare(2));
        let first = declare(0);
        for number in 1..DECLARATIONS_MAX {
            declare(number);
        }
        assert!(Arc::ptr_eq(&first, &declare(0)));
        declare(DECLARATIONS_MAX);
        assert_eq!(declarations.0.lock().expect("no panic").len(), 1);
        assert!(!Arc::ptr_eq(&first, &declare(0)));
    }
}
