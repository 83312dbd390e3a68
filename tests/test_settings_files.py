"""Files that users write: `shotline init`, and the JSON Schemas of settings and plans, by an independent validator."""

import copy
import json
import os
import pty
import re
import select
import subprocess
import time
import tomllib

import pytest
from jsonschema import Draft202012Validator

from common import PROGRAM, ROOT, WAIT_TIMEOUT_S, run

PLANS = sorted((ROOT / "examples" / "plans").glob("*.toml"))
PAGES = sorted((ROOT / "docs").glob("**/*.md"))
BLOCKS = [
    block for page in PAGES for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
]


def validator(what):
    schema = json.loads((ROOT / "docs" / "schemas" / f"{what}.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


SETTINGS, PLAN = validator("settings"), validator("plan")


def printed(*arguments):
    """Returns the standard output of a command that succeeds."""
    outcome = run(*arguments)
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout


def commented(text):
    """Returns the settings that are comments, as TOML lines."""
    return [line[1:] for line in text.splitlines() if re.match(r"#\w+ = ", line)]


def accepts_plan(tmp_path, text):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return run("plan", str(path), "--json").code == 0


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.name)
def test_example_plans_follow_the_schema(path):
    PLAN.validate(tomllib.loads(path.read_text()))


def test_settings_of_the_book_follow_the_schema():
    assert len(BLOCKS) >= 2
    for block in BLOCKS:
        (PLAN if "[[stage]]" in block else SETTINGS).validate(tomllib.loads(block))


@pytest.mark.parametrize("sender", ["probe", "packets", "digitizer", "emulated"])
def test_written_settings_follow_the_schema(tmp_path, sender):
    path = tmp_path / "run.toml"
    printed("init", str(path), "--yes", "--sender", sender, "--keep", "400GiB")
    text = path.read_text()
    chosen = tomllib.loads(text)
    SETTINGS.validate(chosen)
    assert "out" in chosen and ("probe" in chosen) != ("listen" in chosen)
    assert set(SETTINGS.schema["properties"]) == set(chosen) | {line.split(" ")[0] for line in commented(text)}
    for line in commented(text):
        SETTINGS.validate(tomllib.loads(line))
    assert text.startswith(f"#:schema {SETTINGS.schema['$id']}\n")


@pytest.mark.parametrize(
    "line",
    [
        "sampels = 2000",
        'samples = "2000"',
        "samples = 0",
        'pool = "64MB"',
        "pool = 1.5",
        'policy = "drop"',
        'transport = "tcp"',
        'durable = "yes"',
        'align_window = "10"',
        'probe = "lab"',
        "out = 5",
        "transmit_sequence = [1, -2]",
    ],
)
def test_wrong_settings_are_refused_by_schema_and_program(tmp_path, line):
    assert list(SETTINGS.iter_errors(tomllib.loads(line)))
    path = tmp_path / "run.toml"
    path.write_text(f"{line}\n")
    arguments = ["--out", str(tmp_path / "run.h5")]
    if not line.startswith("probe"):
        arguments += ["--probe", "[::1]:9"]
    outcome = run("record", "--config", str(path), *arguments)
    assert outcome.code == 1 and "run.toml" in outcome.stderr


def broken_plans():
    plan = tomllib.loads(PLANS[0].read_text())

    def change(name, at, key, value):
        changed = copy.deepcopy(plan)
        table = changed
        for step in at:
            table = table[step]
        if value is None:
            del table[key]
        else:
            table[key] = value
        return pytest.param(changed, id=name)

    return [
        change("misspelt key", ["source"], "chanels", 96),
        change("misspelt table", [], "receivers", {}),
        change("wrong type", ["source"], "channels", "96"),
        change("out of range", ["source"], "bits", 17),
        change("missing key", ["source"], "samples", None),
        change("unit of another quantity", ["source"], "sample_rate", "40 MHz"),
        change("no unit", ["receiver"], "pool", "256"),
        change("unknown kind", ["stage", 0], "kind", "cable"),
        change("key of another kind", ["stage", 0], "lanes", 4),
        change("two sources", [], "transfer", {"bytes": "64 MB"}),
        change("no stage", [], "stage", None),
    ]


def as_toml(plan):
    """Returns a plan, which has tables of plain values, as TOML."""

    def lines(table):
        return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())

    plain = {key: value for key, value in plan.items() if not isinstance(value, dict | list)}
    text = lines(plain)
    for key, value in plan.items():
        if isinstance(value, dict):
            text += f"[{key}]\n{lines(value)}"
        elif isinstance(value, list):
            text += "".join(f"[[{key}]]\n{lines(table)}" for table in value)
    return text


@pytest.mark.parametrize("plan", broken_plans())
def test_wrong_plans_are_refused_by_schema_and_program(tmp_path, plan):
    assert list(PLAN.iter_errors(plan))
    assert not accepts_plan(tmp_path, as_toml(plan))


def test_the_plan_that_is_broken_above_is_accepted(tmp_path):
    assert accepts_plan(tmp_path, as_toml(tomllib.loads(PLANS[0].read_text())))


def test_schema_command_prints_the_committed_files():
    for what in ("settings", "plan"):
        assert printed("schema", what) == (ROOT / "docs" / "schemas" / f"{what}.json").read_text()
        assert json.loads(printed("schema", what, "--json")) == validator(what).schema


def test_init_asks_on_a_terminal(tmp_path):
    master, slave = pty.openpty()
    command = [PROGRAM, "init", "--json"]
    answers = [
        ("sender [probe]: ", "packets"),
        ("listen [", "127.0.0.1:7148"),
        ("framing [spead]: ", ""),
        ("out [run.h5]: ", "a.h5"),
    ]
    answers += [("seconds [none]: ", "5"), ("keep [none]: ", "")]
    with subprocess.Popen(command, cwd=tmp_path, stdin=slave, stdout=subprocess.PIPE, stderr=slave) as program:
        os.close(slave)
        try:
            said, deadline = "", time.monotonic() + WAIT_TIMEOUT_S
            for prompt, answer in answers:
                while prompt not in said:
                    assert time.monotonic() < deadline, said
                    if select.select([master], [], [], 1)[0]:
                        said += os.read(master, 4096).decode()
                said = ""
                os.write(master, f"{answer}\n".encode())
            written = json.loads(program.stdout.read())
        except BaseException:
            # Otherwise the end of the block waits for an answer that does not come.
            program.kill()
            raise
    os.close(master)
    assert program.returncode == 0 and written["file"] == "shotline.toml"
    chosen = tomllib.loads((tmp_path / "shotline.toml").read_text())
    assert chosen == {"listen": "127.0.0.1:7148", "framing": "spead", "out": "a.h5", "seconds": 5}
