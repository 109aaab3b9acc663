//! Words for messages: lists of names, and the nearest name.

/// Names that a wrong one is compared with.
const MOST_COMPARED: usize = 200;

/// "a, b, c", cut after forty; "nothing" when empty.
pub(crate) fn list<T: AsRef<str>>(names: &[T]) -> String {
    const SHOWN: usize = 40;
    if names.is_empty() {
        return "nothing".to_owned();
    }
    let shown: Vec<&str> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Bytes of the longest word that is compared: time grows with the square.
const MOST_LENGTH: usize = 200;

/// The name that `written` was probably meant to be.
pub(crate) fn nearest<'a, T: AsRef<str>>(written: &str, names: &'a [T]) -> Option<&'a str> {
    let plain = |s: &str| s.to_lowercase().replace('_', "-");
    let written = plain(written);
    let limit = |name: &str| 1 + name.len() / 4;
    if written.len() > MOST_LENGTH {
        return None;
    }
    // Thousands of wrong names among thousands of known ones need not be compared each with each.
    names
        .iter()
        .take(MOST_COMPARED)
        .filter(|n| n.as_ref().len().abs_diff(written.len()) <= limit(n.as_ref()) + 3)
        .map(|n| (strsim::damerau_levenshtein(&written, &plain(n.as_ref())), n.as_ref()))
        .filter(|(distance, name)| *distance <= limit(name))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// "did you mean `x`? allowed: ..." for a name that is not one of `names`.
pub(crate) fn suggestion<T: AsRef<str>>(written: &str, names: &[T]) -> String {
    match nearest(written, names) {
        Some(name) => format!("did you mean `{name}`? allowed: {}", list(names)),
        None => format!("allowed: {}", list(names)),
    }
}

/// True for a name of letters, digits, `-` and `_`.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_forgives_typing_but_not_everything() {
        let keys = ["delay", "rate", "queue", "host-queue"];
        assert_eq!(nearest("dely", &keys), Some("delay"));
        assert_eq!(nearest("host_queue", &keys), Some("host-queue"));
        assert_eq!(nearest("bandwidth", &keys), None);
        let long = "rate".repeat(60);
        assert_eq!(nearest(&format!("{long}s"), &[long]), None);
        assert_eq!(suggestion("raet", &keys), "did you mean `rate`? allowed: delay, rate, queue, host-queue");
    }
}
