//! h5py and the independent verifier, in one Python process shared by all tests of a process.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Reads lines `[code, args]`, runs the code with `args`, and replies `null` or a traceback.
const SERVER: &str = "
import json, sys, traceback
import h5py, hdf5plugin, numpy
answers, sys.stdout = sys.stdout, sys.stderr
print('ready', file=answers, flush=True)
for line in sys.stdin:
    code, args = json.loads(line)
    try:
        exec(code, {'args': args})
        answer = None
    except Exception:
        answer = traceback.format_exc()
    print(json.dumps(answer), file=answers, flush=True)
";

const VERDICT: &str = "
import h5py
from shotline_verify import Verifier
path, expected = args
with h5py.File(path, 'r') as file:
    verdict = Verifier(file, True, 0).run()
assert verdict['verified'] == expected, verdict
";

/// A Python server process. It ends when its standard input is closed, at the latest with this process.
struct Python {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

static PYTHON: Mutex<Option<Python>> = Mutex::new(None);

/// Starts Python if necessary. Tests that use it begin with `or_skip!(needs_python())`.
pub fn needs_python() -> Result<(), String> {
    let mut python = PYTHON.lock().unwrap_or_else(PoisonError::into_inner);
    if python.is_none() {
        *python = Some(start()?);
    }
    Ok(())
}

/// Starts `SHOTLINE_PYTHON`, or the Python of the repository's `.venv`.
fn start() -> Result<Python, String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = std::env::var_os("SHOTLINE_PYTHON").map_or(root.join(".venv/bin/python"), PathBuf::from);
    let missing = |why: String| format!("no Python with h5py and hdf5plugin ({why}); scripts/setup.sh python test");
    let mut child = Command::new(&program)
        .args(["-c", SERVER])
        .env("PYTHONPATH", root.join("python"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null()) // does not keep descriptors of the test open
        .spawn()
        .map_err(|error| missing(format!("{}: {error}", program.display())))?;
    let (input, mut output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut line = String::new();
    output.read_line(&mut line).map_err(|error| missing(error.to_string()))?;
    if line != "ready\n" {
        return Err(missing(format!("{} cannot import them", program.display())));
    }
    Ok(Python { input, output })
}

/// Runs code with the variable `args`. Panics if it raises an exception.
pub fn python(code: &str, args: Value) {
    let mut python = PYTHON.lock().unwrap_or_else(PoisonError::into_inner);
    let python = python.as_mut().expect("the test begins with needs_python");
    writeln!(python.input, "{}", json!([code, args])).unwrap();
    let mut line = String::new();
    python.output.read_line(&mut line).unwrap();
    let answer: Value = serde_json::from_str(&line).expect("Python answers");
    assert!(answer.is_null(), "{}", answer.as_str().unwrap_or_default());
}

/// Asserts the verdict of the independent verifier on a recording.
pub fn python_verdict(path: &Path, expected: bool) {
    python(VERDICT, json!([path, expected]));
}
