"""Tests of hdl/constraints against the registers of the modules for which the files are."""

import pytest
from content import HDL
from crossings import Constraints, Design

FILES = sorted((HDL / "constraints").glob("*.xdc"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem, scope="module")
def both(request):
    return Constraints(request.param), Design(request.param.stem)


def test_every_pattern_matches_a_register(both):
    constraints, design = both
    names = [name for register in design.registers.values() for name in register.names + register.pins]
    unused = [pattern.pattern for pattern in constraints.patterns if not any(map(pattern.fullmatch, names))]
    assert constraints.patterns and not unused


def test_every_crossing_register_is_matched(both):
    constraints, design = both
    registers = [register for name, register in design.registers.items() if name.rpartition("/")[2].startswith("cdc_")]
    missed = [
        register.names
        for register in registers
        if not any(
            pattern.fullmatch(name) for pattern in constraints.patterns for name in register.names + register.pins
        )
    ]
    assert registers and not missed


def test_every_path_between_clocks_has_a_limit(both):
    constraints, design = both
    crossings = list(design.crossings())
    missed = {(s.names[0], e[0]) for s, e in crossings if not constraints.cover(s.names, e)}
    assert crossings and not missed


def test_every_pointer_between_clocks_has_a_limit_of_its_skew(both):
    constraints, design = both
    pointers = [(s.names, ends) for s, ends in design.crossings() if "/cdc_chain" in ends[0] and len(ends) > 1]
    missed = {(names[0], ends[0]) for names, ends in pointers if not constraints.align(names, ends)}
    assert pointers and not missed
