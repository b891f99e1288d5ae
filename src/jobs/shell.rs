//! Text for shells.

/// `text` as one word of a POSIX shell, in quotes only where needed.
pub fn word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// A command line of these words.
pub fn words(words: &[String]) -> String {
    words.iter().map(|text| word(text)).collect::<Vec<_>>().join(" ")
}

/// Assignments of variables, a line each.
pub fn assignments(variables: &[(&str, &str)]) -> String {
    variables
        .iter()
        .map(|(name, value)| {
            format!(
                "{name}={}\n",
                if value.is_empty() { String::new() } else { word(value) }
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_shell_reads_back_what_was_written() {
        for text in [
            "plain/path_1.pt",
            "",
            "two words",
            "it's",
            "$(rm) `x` \"y\" \\",
            "a\nb",
            "~",
            "Grüße",
        ] {
            let script = format!("{}printf '%s|' \"$a\" {}", assignments(&[("a", text)]), word(text));
            let output = Command::new("sh").arg("-c").arg(&script).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{text}|{text}|"));
        }
        assert_eq!(words(&["sbatch".into(), "a b".into()]), "sbatch 'a b'");
    }
}
