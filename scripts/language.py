"""Checks the language of code and documents: words that are not used, names of tests, subjects of commits.

`scripts/words.tsv` has the words and what is written instead. CONTRIBUTING.md, section "English", says why. Spelling is
checked by `typos`, the form of doc comments by rustdoc and ruff.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = ROOT / "scripts" / "words.tsv"
# Extensions of the files that are checked. Not checked are generated files and those that quote the words.
TEXT = {
    ".rs",
    ".py",
    ".pyi",
    ".c",
    ".cpp",
    ".h",
    ".sv",
    ".svh",
    ".sh",
    ".ts",
    ".tsx",
    ".mjs",
    ".css",
    ".md",
    ".toml",
    ".txt",
}
EXCLUDED = {"scripts/words.tsv", "scripts/language.py", "CHANGELOG.md"}
GENERATED = "proptest-regressions/"
CHECKS = ["words", "tests", "subjects"]
MAX_TEST_NAME = 60
MAX_SUBJECT = 72
# Commits before this date follow an older rule.
SUBJECTS_SINCE = "2026-11-25T12:00:00Z"

RUST_TEST = re.compile(r"#\[(?:\w+::)?test\](?:\s*#\[[^\]]*\])*\s*(?:async )?fn (\w+)")
PYTHON_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
# A word boundary within an identifier: "ToldOf" is checked as "Told Of", "told_of" as "told of".
PART = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")

# "Added", "Adding" and "Adds"; not "Embed", "Bring", "Pass".
NOT_IMPERATIVE = re.compile(r"(?!Bring|Feed|Need|Embed|Speed)\w+(ed|ing|[^s]s) ")


def words():
    """Returns pairs of a compiled pattern and what is written instead."""
    pairs = []
    for line in WORDS.read_text().splitlines():
        if line and not line.startswith("#"):
            word, _, instead = line.partition("\t")
            pairs.append((re.compile(rf"\b(?:{word})\b", re.IGNORECASE), instead.strip()))
    return pairs


def files(prefixes):
    """Returns the tracked text files whose path starts with one of the prefixes, or all of them without prefixes."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = [
        name
        for name in listed.splitlines()
        if Path(name).suffix in TEXT and name not in EXCLUDED and GENERATED not in name
    ]
    return [name for name in names if (ROOT / name).is_file() and (not prefixes or name.startswith(tuple(prefixes)))]


def unused_words(name, text, pairs):
    """Returns one finding for each word of the list that a file contains."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        spaced = PART.sub(" ", line)
        for pattern, instead in pairs:
            if match := pattern.search(spaced):
                advice = f"; write: {instead}" if instead else ""
                found.append(f'{name}:{number}: "{match.group(0)}"{advice}')
    return found


def long_test_names(name, text):
    """Returns one finding for each test of a file whose name is too long."""
    pattern = {".rs": RUST_TEST, ".py": PYTHON_TEST}.get(Path(name).suffix)
    tests = pattern.findall(text) if pattern else []
    return [
        f"{name}: test name of {len(test)} characters, at most {MAX_TEST_NAME}: {test}"
        for test in tests
        if len(test) > MAX_TEST_NAME
    ]


def subjects():
    """Returns one finding for each commit whose subject is too long or not in the imperative."""
    log = subprocess.run(
        ["git", "log", "--no-merges", f"--since={SUBJECTS_SINCE}", "--format=%h\t%s"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found = []
    for line in log.splitlines():
        commit, _, subject = line.partition("\t")
        if len(subject) > MAX_SUBJECT:
            found.append(f"commit {commit}: subject of {len(subject)} characters, at most {MAX_SUBJECT}: {subject}")
        elif not re.fullmatch(r"[A-Z][a-z]+ .*[^.]", subject) or NOT_IMPERATIVE.match(subject):
            found.append(
                f'commit {commit}: subject must begin with an imperative ("Add ...") and have no period: {subject}'
            )
    return found


def main():
    """Prints every finding and exits with status 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefixes", nargs="*", metavar="PATH", help="check only files below these paths")
    parser.add_argument("--only", choices=CHECKS, action="append", help="run only this check (repeatable)")
    arguments = parser.parse_args()
    checks = arguments.only or CHECKS
    pairs = words() if "words" in checks else []
    findings = subjects() if "subjects" in checks else []
    for name in files(arguments.prefixes):
        text = (ROOT / name).read_text(encoding="utf-8")
        findings += unused_words(name, text, pairs)
        if "tests" in checks:
            findings += long_test_names(name, text)
    print(*findings, sep="\n")
    print(f"{len(findings)} findings")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
