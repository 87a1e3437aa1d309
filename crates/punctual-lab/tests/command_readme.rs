//! The README shows programs that are built: the examples, word for word.

const README: &str = include_str!("../../../README.md");

#[test]
fn the_readme_shows_the_examples() {
    for example in
        [include_str!("../../punctual/examples/ping.rs"), include_str!("../../punctual/examples/pong.rs")]
    {
        let (_title, program) = example.split_once("\n\n").expect("a title, then the program");
        assert!(README.contains(&format!("```rust\n{program}```")), "not in the README:\n{program}");
    }
}
