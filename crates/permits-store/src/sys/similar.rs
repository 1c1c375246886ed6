//! Names that a misspelt one may stand for.

/// How many similar names are returned, at most.
const MOST: usize = 3;

/// A name is searched for inside of others if it is at least this long.
const MIN_PART: usize = 3;

/// The names that contain `name`, or differ from it in few characters: the most similar first, at most three.
pub fn similar(name: &str, known: Vec<String>) -> Vec<String> {
    let wanted = name.to_lowercase();
    let most = (wanted.chars().count() / 3).max(1);
    let difference = |other: &str| {
        let other = other.to_lowercase();
        let shorter = other.len().abs_diff(wanted.len());
        let is_part = wanted.len() >= MIN_PART && other.contains(&wanted);
        // A character has at most 4 bytes.
        let distance = || strsim::osa_distance(&other, &wanted);
        if is_part {
            Some(shorter)
        } else {
            (shorter <= most * 4).then(distance).filter(|distance| *distance <= most)
        }
    };
    let others = known.into_iter().filter(|other| other != name);
    let mut found: Vec<_> = others.filter_map(|other| Some((difference(&other)?, other))).collect();
    found.sort();
    found.into_iter().map(|(_, other)| other).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::similar;

    #[test]
    fn similar_names_differ_in_few_characters_or_contain_the_name() {
        let known =
            ["exports", "Exports", "export", "imports", "api/tenant-7", "api/tenant-70", "api", "日本"];
        let found = |name| similar(name, known.map(str::to_owned).into());
        assert_eq!(found("exprots"), ["Exports", "exports", "export"]);
        assert_eq!(found("exports"), ["Exports", "export", "imports"], "not itself");
        assert_eq!(found("tenant-7"), ["api/tenant-7", "api/tenant-70"]);
        assert_eq!(found("apy"), ["api"]);
        assert_eq!(found("日本語"), ["日本"]);
        assert_eq!(found("a"), [""; 0]);
        assert_eq!(found("backups"), [""; 0]);
    }
}
