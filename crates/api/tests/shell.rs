//! Words of a shell are what they were.
use aetheris_api::shell::word;

#[test]
fn a_shell_expands_nothing_of_a_word() {
    for text in ["~", "~root", "~+", "a*", "{a,b}", "=ls", "$HOME"] {
        let line = format!("printf %s {}", word(text));
        let out = std::process::Command::new("sh").arg("-c").arg(&line).output().unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap(), text, "{line}");
    }
}
