//! The examples for users, as programs.

use shotline_testing::{Process, example};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{ChildStdout, Command, Output, Stdio};

/// Example 04, which waits for initiators.
struct Target {
    process: Process,
    token: String,
    address: String,
    output: BufReader<ChildStdout>,
}

impl Target {
    fn start() -> Self {
        let mut command = example("04-serve-memory");
        let mut process = Process::start(command.arg("127.0.0.1:0").stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = |prefix: &str| {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            line.trim().strip_prefix(prefix).unwrap_or_else(|| panic!("{line}")).to_owned()
        };
        let (token, address) = (line("token "), line("listening on "));
        Self { process, token, address, output }
    }

    /// Runs example 03 with these last arguments.
    fn initiator(&self, arguments: &[&str]) -> Output {
        let mut command = example("03-write-to-a-target");
        command.args([&self.address, &self.token]).args(arguments).output().unwrap()
    }

    /// Ends the target, and returns what it prints.
    fn end(mut self) -> String {
        writeln!(self.process.stdin.take().unwrap()).unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "{rest}");
        rest
    }
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn example_01_prints_what_the_guide_shows() {
    let guide = include_str!("../../../../docs/verbs/overview.md");
    let printed = printed(&mut example("01-read-write-send"));
    assert!(guide.contains(&format!("```text\n{printed}```")), "{printed}");
}

#[test]
fn example_03_writes_to_the_memory_of_example_04() {
    let target = Target::start();
    let output = target.initiator(&["images"]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let guide = include_str!("../../../../docs/endpoints.md");
    assert!(guide.contains(&format!("```text\n{printed}```")), "docs/endpoints.md shows other output than\n{printed}");
    let rest = target.end();
    assert!(rest.contains("images begins with \"written by an initiator\""), "{rest}");
    assert!(rest.contains("images: 23 bytes written, 23 bytes read"), "{rest}");
    assert!(rest.contains("counters: 0 bytes written, 0 bytes read"), "{rest}");
}

#[test]
fn example_03_reports_what_the_target_does_not_allow() {
    let target = Target::start();
    let complaint = |arguments: &[&str]| {
        let output = target.initiator(arguments);
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(complaint(&["nowhere"]).contains("no region nowhere"));
    assert!(complaint(&[]).contains("expected ADDRESS:PORT TOKEN REGION"));
    // One byte past the end: the target drops the packets, and the retries are exhausted.
    let words = complaint(&["counters", "4074"]);
    assert!(words.contains("RetryExceeded"), "{words}");
    target.end();
}

#[test]
fn guide_shows_code_of_example_03() {
    let (guide, source) =
        (include_str!("../../../../docs/endpoints.md"), include_str!("../../../../examples/03-write-to-a-target.rs"));
    let (_, section) = guide.split_once("### An initiator in Rust").unwrap();
    let (code, _) = section.split_once("```rust\n").unwrap().1.split_once("```").unwrap();
    for line in code.lines().filter(|line| !line.starts_with("//")) {
        assert!(source.lines().any(|own| own.trim() == line.trim()), "not in the example: {line}");
    }
}

#[test]
fn example_07_writes_each_block_that_is_requested() {
    let blocks = [3, 2, 1, 0].map(|block| format!("block {block}: 100000 bytes, as at the server: true\n"));
    assert_eq!(printed(&mut example("07-custom-endpoint")), blocks.concat());
}
