//! Comments, and names that come from elsewhere.

use crate::address::Family;
use crate::export::MARK;
use crate::interface::InterfaceName;

/// The first lines of a file: who wrote it, and how it is written anew.
pub(super) fn header(command: &str) -> String {
    format!("{MARK}: the state of one moment; to write it anew: {command}\n")
}

/// A text as a comment that stays one: what could end a line, or be no text at all, is
/// escaped.
pub(super) fn comment(text: &str) -> String {
    let mut line = String::from("# ");
    for c in text.chars() {
        if c == ' ' || c.is_ascii_graphic() {
            line.push(c);
        } else {
            line.extend(c.escape_default());
        }
    }
    line.push('\n');
    line
}

/// Whether a name has nothing that any of the formats gives a meaning to.
pub(super) fn is_plain(name: &InterfaceName) -> bool {
    let mut chars = name.as_str().chars();
    let begins = chars.next().is_some_and(|c| c.is_ascii_alphanumeric());
    begins && chars.all(is_plain_char)
}

fn is_plain_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// A name as part of a file's name: other characters as `=` and two hexadecimal digits for
/// each byte, so that two names never become one.
pub(super) fn in_file_name(name: &InterfaceName) -> String {
    let mut text = String::new();
    for byte in name.as_str().bytes() {
        if is_plain_char(char::from(byte)) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("={byte:02x}"));
        }
    }
    text
}

/// A pattern of glob(7) that a name fits, without any character that has a meaning.
pub(super) fn pattern(name: &InterfaceName) -> String {
    let mut text = String::new();
    for c in name.as_str().chars() {
        if is_plain_char(c) {
            text.push(c);
        } else if !text.ends_with('*') {
            text.push('*');
        }
    }
    text
}

/// Why a family has no policy.
pub(super) fn inactive(family: Family) -> String {
    format!("{family}: one uplink, so no table and no rules (when = \"multihomed\")")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> InterfaceName {
        text.parse().unwrap()
    }

    #[test]
    fn a_comment_is_one_line() {
        assert_eq!(comment("a\u{2028}b\nc\\"), "# a\\u{2028}b\\nc\\\n");
    }

    #[test]
    fn names_become_file_names_that_differ() {
        assert_eq!(in_file_name(&name("eth0.5")), "eth0.5");
        assert_eq!(
            in_file_name(&name(r#"e'"$(x)#%n"#)),
            "e=27=22=24=28x=29=23=25n"
        );
        assert_eq!(in_file_name(&name("a=")), "a=3d");
        assert_eq!(in_file_name(&name("é")), "=c3=a9");
    }

    #[test]
    fn patterns_have_nothing_but_stars() {
        assert_eq!(pattern(&name(r#"e'"$(x)#%n"#)), "e*x*n");
        assert!(is_plain(&name("enp0s31f6.5_a-b")));
        assert!(!is_plain(&name("-x")));
        assert!(!is_plain(&name("[x]")));
    }
}
