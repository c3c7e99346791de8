/// How many names a list in an error holds.
const MOST: usize = 16;
/// Longer names are not compared: their authors pasted something.
const LONGEST: usize = 64;

/// The names, and how many more there are.
pub(in crate::policy) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names = names.into_iter();
    let mut text = names.by_ref().take(MOST).collect::<Vec<_>>().join(", ");
    match names.count() {
        0 => {}
        more => text.push_str(&format!(" and {more} more")),
    }
    text
}

/// `did you mean "x"? ` if a name is like the one that was written.
pub(in crate::policy) fn did_you_mean<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let nearest = names
        .into_iter()
        .filter_map(|name| Some((distance(written, name)?, name)))
        .min_by_key(|(distance, _)| *distance);
    nearest.map_or(String::new(), |(_, name)| format!("did you mean {name:?}? "))
}

/// How many letters must change, if that is few enough for a slip.
fn distance(written: &str, name: &str) -> Option<usize> {
    let normal = |text: &str| -> Vec<char> {
        text.chars()
            .map(|letter| if letter == '-' { '_' } else { letter.to_ascii_lowercase() })
            .take(LONGEST + 1)
            .collect()
    };
    let (written, name) = (normal(written), normal(name));
    let few = (name.len().max(written.len()) / 3).clamp(1, 3);
    if written.len() > LONGEST || name.len() > LONGEST || written.len().abs_diff(name.len()) > few {
        return None;
    }
    // Rows of the usual table, the last two of them for letters that changed places.
    let (mut before, mut row): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=name.len()).collect());
    for (line, letter) in written.iter().enumerate() {
        let mut next = vec![line + 1];
        for (column, other) in name.iter().enumerate() {
            let of = |row: &[usize], place: usize| row.get(place).copied().unwrap_or(usize::MAX / 2);
            let replaced = of(&row, column) + usize::from(letter != other);
            let mut best = replaced.min(of(&row, column + 1) + 1).min(of(&next, column) + 1);
            let swapped =
                line > 0 && column > 0 && name.get(column - 1) == Some(letter) && written.get(line - 1) == Some(other);
            if swapped {
                best = best.min(of(&before, column - 1) + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().filter(|distance| *distance <= few)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised() {
        let names = ["burst", "quota", "per-user", "on_failure"];
        for (written, meant) in
            [("brust", "burst"), ("Quota", "quota"), ("per_usr", "per-user"), ("on-failure", "on_failure")]
        {
            assert_eq!(did_you_mean(written, names), format!("did you mean {meant:?}? "));
        }
        for written in ["", "x", "limit", "something else altogether"] {
            assert_eq!(did_you_mean(written, names), "", "{written}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(listed(["a", "b"]), "a, b");
        assert!(listed(std::iter::repeat_n("a", 20)).ends_with(", a and 4 more"));
    }
}
