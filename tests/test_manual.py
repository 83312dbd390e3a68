"""Manual pages and shell completions, by the programs that read them: man, bash, zsh, fish."""

import json
import os
import shutil
import subprocess

import pytest

from common import PROGRAM, run

WIDE = {**os.environ, "MANWIDTH": "100", "MANPAGER": "cat", "LC_ALL": "C.UTF-8", "MANROFFOPT": ""}


def need(program):
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")


def succeeded(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Folder and names of all pages."""
    folder = tmp_path_factory.mktemp("man") / "man1"
    return folder, run("man", "--dir", str(folder), "--json").succeeded()["pages"]


def test_pages_are_those_that_are_listed(pages):
    folder, names = pages
    assert sorted(names) == sorted(path.name for path in folder.iterdir())
    assert {"shotline.1", "shotline-record.1", "shotline-probe-describe.1"} <= set(names)
    again = run("man", "--dir", str(folder))
    assert again.code == 0 and f"{len(names)} pages" in again.stdout


def test_man_finds_no_fault_in_any_page(pages):
    need("man")
    need("groff")
    folder, names = pages
    for name in names:
        done = succeeded("man", "--warnings", "-l", str(folder / name), env=WIDE)
        assert not done.stderr, f"{name}: {done.stderr}"
        assert name.removesuffix(".1").replace("-", " ") in done.stdout


def test_man_shows_examples_as_they_are_typed(pages):
    need("man")
    folder, _ = pages
    text = succeeded("man", "-l", str(folder / "shotline-doctor.1"), env=WIDE).stdout
    assert "shotline doctor --json | jq '.checks[] | select(.state != \"ok\")'" in text
    assert "       --probe <ADDRESS:PORT>" in text and "Shotline 0." in text


def test_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    assert "file/man" in run("man", "--dir", str(tmp_path / "file" / "man")).refused()


def completed(line):
    """Returns what bash completes at the end of a line, with the function of the script."""
    script = f"""
        source <("{PROGRAM}" completions bash)
        COMP_LINE={line!r} COMP_POINT={len(line)}
        COMP_WORDS=($COMP_LINE)
        [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        function=$(complete -p shotline | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        $function shotline "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return set(succeeded("bash", "--norc", "-c", script).stdout.split())


def test_bash_completes_commands_flags_and_values():
    need("bash")
    assert completed("shotline rec") == {"record", "recover"}
    assert {"discover", "describe", "status"} <= completed("shotline probe ")
    assert completed("shotline record --sample-r") == {"--sample-rate-hz"}
    assert completed("shotline init --sender d") == {"digitizer"}
    assert completed("shotline --explain wire") == {"wire_gap"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_parses_its_completions(tmp_path, shell):
    script = run("completions", shell)
    assert script.code == 0 and "shotline" in script.stdout
    assert json.loads(run("completions", shell, "--json").stdout) == {"shell": shell, "script": script.stdout}
    need(shell)
    path = tmp_path / "script"
    path.write_text(script.stdout)
    assert not succeeded(shell, "-n", str(path)).stderr
