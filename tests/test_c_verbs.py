"""Endpoints in C: memory of targets by RDMA, served memory, messages, wrong calls, and ends while threads wait."""

import subprocess

import pytest
from c_programs import COMPILERS, EXAMPLES, SOURCES, command
from memory_target import Target


@pytest.mark.parametrize(
    ("language", "package"), [("c11", "shotline"), ("c++17", "shotline"), ("c11", "shotline-static")]
)
def test_read_write_uses_the_memory_that_serve_memory_serves(library, language, package):
    serve, use = (library.compile(EXAMPLES / f"{name}.c", language, package) for name in ("serve_memory", "read_write"))
    with subprocess.Popen([serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        address, token = server.stdout.readline().split()
        for before in range(2):
            printed = command(use, address, token).splitlines()
            assert printed == [
                "65536 bytes written and read back: they are equal",
                f"initiators before this one: {before}",
            ]
        server.stdin.close()
        last = server.stdout.read()
    assert server.returncode == 0
    assert last == (
        "2 initiators, 32 writes of 131072 bytes, 2 reads of 131072 bytes, 2 atomic operations; the first byte is 42\n"
    )


def test_read_write_uses_the_memory_of_the_program(library):
    with Target("--region", "data=1M,rights=atomic") as target:
        printed = command(library.compile(EXAMPLES / "read_write.c"), target.address, target.token)
    assert printed.startswith("65536 bytes written and read back: they are equal\n")


def test_messages_of_c_come_back_from_a_target(library):
    with Target("--region", "data=4K", "--messages") as target:
        printed = command(library.compile(SOURCES / "messages.c"), target.address, target.token)
    assert printed == "all messages came back\n"


@pytest.mark.parametrize("language", COMPILERS)
def test_wrong_calls_of_endpoints_have_defined_errors(library, language):
    printed = command(library.compile(SOURCES / "verbs_misuse.c", language))
    assert printed == "every wrong call has failed as documented\n"
