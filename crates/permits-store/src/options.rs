//! The options of a URL: `name=value` pairs behind the question mark. Each must be known and given once.
//!
//! Unknown options are refused, because a misspelt `tls_ca` that is ignored would look like encryption. An
//! error never repeats a value, and repeats a name only if it resembles a known one, because any other text
//! may be a part of a password.

use crate::protocol::Recovery;
use crate::sys::percent;
use crate::sys::similar::similar;

/// The option that every store takes.
pub const RECOVERY: &str = "recovery";

/// An option that URLs of some kind may have.
pub struct Known {
    /// The name in the URL.
    pub name: &'static str,
    /// Why this URL does not take the option, as the end of a sentence; `None` if it does.
    pub refused: Option<&'static str>,
}

/// The options of one URL, with their values decoded.
#[derive(Debug, Default)]
pub struct Options(Vec<(&'static str, String)>);

impl Options {
    /// Reads the part of a URL behind its question mark.
    pub fn parse(query: &str, known: &[Known]) -> Result<Self, String> {
        let mut given: Vec<(&'static str, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(Known { name, refused }) = known.iter().find(|option| option.name == name) else {
                return Err(unknown(name, known));
            };
            if let Some(reason) = refused {
                return Err(format!("option {name} {reason}"));
            }
            if given.iter().any(|(earlier, _)| earlier == name) {
                return Err(format!("option {name} is given twice"));
            }
            let value = percent::decode(value).ok_or_else(|| format!("option {name}: {NOT_ENCODED}"))?;
            if value.is_empty() {
                return Err(format!("option {name} has no value: write {name}=VALUE"));
            }
            given.push((name, value));
        }
        Ok(Self(given))
    }

    /// The value of an option, if it was given.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|(given, value)| (*given == name).then_some(value.as_str()))
    }

    /// The recovery that the URL asks for.
    pub fn recovery(&self) -> Result<Option<Recovery>, String> {
        Ok(match self.value(RECOVERY) {
            None => None,
            Some("off") => Some(Recovery::Off),
            Some("interval") => Some(Recovery::Interval),
            Some("strict") => Some(Recovery::Strict),
            Some(_) => return Err(format!("option {RECOVERY} must be off, interval or strict")),
        })
    }
}

/// The error for text that is not percent-encoded.
pub const NOT_ENCODED: &str =
    "two hexadecimal digits must follow a %, and the whole must be UTF-8: write % itself as %25";

fn unknown(name: &str, known: &[Known]) -> String {
    match similar(name, known.iter().map(|option| option.name.to_owned()).collect()).first() {
        Some(near) => format!("unknown option {name}: did you mean {near}?"),
        None => {
            let taken: Vec<&str> =
                known.iter().filter(|option| option.refused.is_none()).map(|option| option.name).collect();
            format!("it has an unknown option: this URL takes {}", taken.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Known; 3] = [
        Known { name: RECOVERY, refused: None },
        Known { name: "tls_ca", refused: None },
        Known { name: "db", refused: Some("goes elsewhere") },
    ];

    #[test]
    fn each_option_is_known_and_given_once() {
        let options = Options::parse("tls_ca=/a%20b&recovery=off", &KNOWN).expect("both are known");
        assert_eq!(options.value("tls_ca"), Some("/a b"));
        assert_eq!(options.recovery(), Ok(Some(Recovery::Off)));
        for (query, expected) in [
            ("tls_ac=/x", "unknown option tls_ac: did you mean tls_ca?"),
            ("recover=off", "unknown option recover: did you mean recovery?"),
            ("secret=x", "it has an unknown option: this URL takes recovery, tls_ca"),
            ("db=1", "option db goes elsewhere"),
            ("tls_ca=a&tls_ca=a", "option tls_ca is given twice"),
            ("tls_ca", "option tls_ca has no value: write tls_ca=VALUE"),
        ] {
            assert_eq!(Options::parse(query, &KNOWN).map(drop), Err(expected.to_owned()));
        }
        assert!(Options::parse("tls_ca=%zz", &KNOWN).is_err());
        let options = Options::parse("recovery=no", &KNOWN).expect("the option is known");
        assert!(options.recovery().is_err());
    }
}
