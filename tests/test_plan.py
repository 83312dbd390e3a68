"""`shotline plan`: every example, every refusal, the picture, and the counters of the simulation.

Expected values are derived from the documents and the papers, not from the program's own formulas.
"""

from xml.etree import ElementTree

import pytest

from common import ROOT, run

PLANS = sorted((ROOT / "examples" / "plans").glob("*.toml"))
SOURCE = '[source]\nchannels = 96\nbits = 12\nsample_rate = "40 MS/s"\nsamples = 2000\n'
LINK = '[[stage]]\nkind = "link"\nrate = "100 Gbit/s"\n'
SVG = "{http://www.w3.org/2000/svg}"


def plan(*arguments):
    return run("plan", *arguments, "--json").succeeded()


def write_plan(folder, text):
    path = folder / "plan.toml"
    path.write_text(text)
    return path


def stage(result, name):
    return next(stage for stage in result["stages"] if stage["name"] == name)


def figures(paper):
    """Returns the paper's figures by name."""
    result = plan("--paper", str(paper))
    return {check["quantity"]: check for check in result["checks"]}


def test_there_is_an_example_for_every_paper():
    assert {f"paper{number}.toml" for number in range(5)} <= {path.name for path in PLANS}


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_example_has_text_json_and_svg_output(path, tmp_path):
    picture = tmp_path / "plan.svg"
    words = run("plan", path, "--svg", picture)
    assert words.code == 0, words.stderr
    result = plan(path)
    for row in result["stages"]:
        assert row["name"] in words.stdout
        assert row["used"] == pytest.approx(row["load_bits_per_s"] / row["limit_bits_per_s"])
        assert row["headroom_bits_per_s"] == pytest.approx(row["limit_bits_per_s"] - row["load_bits_per_s"], abs=1)
    assert result["bottleneck"] == max(result["stages"], key=lambda row: round(row["used"], 9))["name"]
    root = ElementTree.parse(picture).getroot()
    assert root.tag == SVG + "svg" and root.find(SVG + "title").text == result["title"]
    groups = [group.get("class") for group in root.findall(SVG + "g")]
    names = ["".join(group.find(SVG + "text").itertext()) for group in root.findall(SVG + "g")]
    assert len(groups) == len(result["stages"])
    highlighted = [name for name, kind in zip(names, groups, strict=True) if "bottleneck" in kind]
    assert len(highlighted) == 1 and highlighted[0].startswith(result["bottleneck"])


def test_a_bar_is_as_long_as_its_load_relative_to_its_limit(tmp_path):
    picture = tmp_path / "plan.svg"
    result = plan("--paper", "0", "--svg", picture)
    for group, row in zip(ElementTree.parse(picture).getroot().findall(SVG + "g"), result["stages"], strict=True):
        _, limit, load = (float(rect.get("width")) for rect in group.findall(SVG + "rect"))
        assert load / limit == pytest.approx(min(row["used"], 1.25), abs=1e-3)


def test_a_name_with_markup_leaves_the_picture_well_formed(tmp_path):
    text = f'title = "a < b & c > \'d\'"\n{SOURCE}{LINK}name = "<x> & \\"y\\" \\u0007"\n'
    picture = tmp_path / "plan.svg"
    plan(write_plan(tmp_path, text), "--svg", picture)
    assert ElementTree.parse(picture).getroot().find(SVG + "title").text == "a < b & c > 'd'"


@pytest.mark.parametrize("number", range(5))
def test_the_plan_of_a_paper_is_its_numbered_example(number):
    assert plan("--paper", str(number)) == plan(ROOT / "examples" / "plans" / f"paper{number}.toml")


def test_paper_0_rates_are_met():
    checks = figures(0)
    assert checks["192 channels: the probe"]["computed"] == pytest.approx(192 * 12 * 40e6 / 1e9)
    for samples, khz, gibits in ((500, 69.68, 74.76), (1000, 37.24, 79.90), (2000, 19.28, 82.74), (4000, 9.82, 84.26)):
        assert checks[f"frame rate, N_s = {samples}"]["computed"] == pytest.approx(khz, rel=1e-3)
        assert checks[f"data rate, N_s = {samples}"]["computed"] == pytest.approx(gibits, rel=1e-3)
    assert checks["frame rate just above the maximum, relative to it"]["computed"] == pytest.approx(0.5, rel=2e-3)


def test_paper_0_drive_drops_the_load_above_12_gbit():
    result = plan("--paper", "0", "--sweep", "1 kHz, 5kHz,10 kHz")
    assert [row["trigger_hz"] for row in result["sweep"]] == [1e3, 5e3, 10e3]
    for row in result["sweep"]:
        load = row["trigger_hz"] * 2 * 288_064 * 8
        assert row["payload_bits_per_s"] == pytest.approx(load)
        assert row["dropped_share"] == pytest.approx(max(0, 1 - 12e9 / load), abs=1e-9)


def test_papers_1_to_4_differ_by_the_documented_amounts():
    assert figures(1)["HBM, 32 banks of 256 bits at 450 MHz"]["computed"] == pytest.approx(460.8)
    assert figures(2)["one way"]["computed"] == pytest.approx(31.25 * 0.8 * 64 / 66 * 5000 / 5001)
    assert figures(2)["one way"]["difference"] == pytest.approx(0.0184, abs=1e-4)
    assert figures(3)["117 bytes, 3 transactions, the first drop"]["computed"] == pytest.approx(68.8)
    assert figures(4)["all three in sequence"]["computed"] == pytest.approx(75.504, abs=1e-3)
    assert figures(4)["slowest stage, pipelined"]["computed"] == pytest.approx(29.257, abs=1e-3)


def test_paper_3_throughput_drops_at_each_extra_transaction():
    rows = {row["packet_bytes"]: row["delivered_bits_per_s"] / 1e9 for row in plan("--paper", "3")["lengths"]}
    for length, gbps in rows.items():
        transactions = -(-length // 64)
        assert gbps == pytest.approx(min(100, length * 8 * 0.2 / transactions), rel=1e-6)


def test_a_packet_card_names_the_lengths_below_line_rate():
    # 16 + 84 bytes of requester stream take two beats of 4 ns from 69 bytes on, 16 + 116 take 2.5 from 101 on.
    result = plan("--packet-card", "--packets-only")
    assert result["below_line_rate"] == [[69, 79], [101, 104]]
    assert result["worst"]["packet_bytes"] == 69 and result["worst"]["limited_by"] == "requester"
    assert result["worst"]["throughput_bits_per_s"] == pytest.approx(125e6 * 89 * 8)
    assert run("plan", "--packet-card", "--packets-only").stdout.count("requester stream") == 2
    words = plan("--packet-card", "--one-write-64")
    assert words["below_line_rate"] == [[64, 1526]] and words["lengths_below"] == 1463


def test_header_split_costs_a_packet_card_a_write_a_packet():
    split = plan("--packet-card", "--header-split", 64)
    # 69 bytes and a header of 16 less the FCS: writes of 64 and 17 bytes take 3 and 2 halves of a beat with their
    # descriptors; an eighth of a read and of a report take one each.
    worst = split["worst"]
    assert (worst["packet_bytes"], worst["limited_by"]) == (69, "requester")
    assert worst["requester_hz"] == pytest.approx(500e6 / 5.25)
    assert split["lengths_below"] > plan("--packet-card")["lengths_below"]


def test_flags_of_a_packet_card_and_of_a_plan_exclude_each_other():
    for arguments in (["--lanes", "8"], ["--packet-card", "--bits", "12"], ["--packet-card", "--paper", "0"]):
        assert run("plan", *arguments).code != 0
    assert "128, 256, 512, 1024" in run("plan", "--packet-card", "--payload", "300").stderr


def test_flags_define_a_plan_without_a_file():
    result = plan(
        *("--probes", "4", "--links", "2", "--channels", "32", "--bits", "16", "--sample-rate", "10 MS/s"),
        *("--samples", "1000", "--trigger", "5 kHz", "--receivers", "2", "--pool", "1 GiB"),
        *("--link-rate", "40 Gbit/s", "--switch-rate", "100 Gbit/s", "--switch-buffer", "16 MiB"),
        *("--pcie-generation", "4", "--pcie-lanes", "8", "--memory", "60 GB/s"),
        *("--accelerator", "7 GB/s", "--accelerators", "2", "--drive", "5100 MB/s", "--drives", "3"),
    )
    kinds = [row["kind"] for row in result["stages"]]
    assert kinds == ["probe", "link", "switch", "pcie", "receive", "memory", "accelerator", "drive"]
    shot = 32 * 1000 * 2 + 64
    assert result["source"]["payload_bits_per_s"] == pytest.approx(8 * 5e3 * shot * 8)
    assert stage(result, "switch")["load_bits_per_s"] == pytest.approx(4 * 5e3 * shot * 8)
    assert stage(result, "drive")["units"] == 6
    assert stage(result, "drive")["load_bits_per_s"] == pytest.approx(4 * 5e3 * shot * 8 / 3)


INVALID_PLANS = [
    (SOURCE.replace("= 12", "= 24") + LINK, 3, "source.bits: expected a whole number from 1 to 16, found 24"),
    (SOURCE.replace("= 96", "= 0") + LINK, 2, "source.channels"),
    (SOURCE.replace("= 2000", "= -5") + LINK, 5, "source.samples"),
    (SOURCE.replace("= 2000", "= 2000000") + LINK, 5, "the packet index allows 4096"),
    (SOURCE.replace("40 MS/s", "40 MHz") + LINK, 4, 'found the unit "MHz"'),
    (SOURCE.replace("samples = 2000\n", "") + LINK, 1, "[source] lacks samples: add samples = 2000"),
    (SOURCE + "sampels = 1\n" + LINK, 6, "[source] has no key sampels"),
    (SOURCE + LINK + "[stag]\n", 9, "the plan has no key stag"),
    (SOURCE + LINK.replace("100 Gbit/s", "-100 Gbit/s"), 8, "stage 1 (link).rate"),
    (SOURCE + LINK.replace('"100 Gbit/s"', "100"), 8, 'as in "100 Gbit/s"'),
    (SOURCE + '[[stage]]\nkind = "pcie"\ngeneration = 9\nlanes = 16\n', 8, "from 1 to 6, found 9"),
    (SOURCE + '[[stage]]\nkind = "pcie"\ngeneration = 3\nlanes = 13\n', 9, "found 13"),
    (SOURCE + '[[stage]]\nkind = "memory"\n', 6, "lacks rate"),
    (SOURCE + '[[stage]]\nkind = "drive"\nrate = "5 GB"\n', 8, 'the unit "GB"'),
    (SOURCE + '[[stage]]\nkind = "tape"\n', 7, '"drive"'),
    (SOURCE + "[[stage]\n", 6, ""),
    (SOURCE, 1, "the plan lacks stage"),
]


@pytest.mark.parametrize("text, line, words", INVALID_PLANS, ids=[words or "syntax" for _, _, words in INVALID_PLANS])
def test_a_wrong_plan_is_refused_with_its_line(text, line, words, tmp_path):
    path = write_plan(tmp_path, text)
    message = run("plan", path).refused()
    assert message.startswith(f"shotline: {path}: line {line}: "), message
    assert words in message


def test_wrong_flags_and_files_are_refused(tmp_path):
    assert "command line: source.bits" in run("plan", "--bits", "99").refused()
    assert "command line: stage 1 (link).rate" in run("plan", "--link-rate", "fast").refused()
    assert "cannot read the plan" in run("plan", tmp_path / "none.toml").refused()
    assert "cannot write" in run("plan", "--svg", tmp_path / "none" / "plan.svg").refused()
    assert "above 0" in run("plan", "--simulate", "0 s").refused()


def test_the_simulation_counts_every_packet_and_is_deterministic():
    arguments = (ROOT / "examples" / "plans" / "switch.toml", "--simulate", "50ms", "--seed", "7")
    result, again = plan(*arguments)["simulation"], plan(*arguments)["simulation"]
    packets = result["packets"]
    assert packets["generated"] == packets["delivered"] + packets["dropped"] + packets["in_flight"]
    assert packets["dropped"] == sum(drop["packets"] for drop in result["drops"])
    for counters in (result, again):
        assert counters.pop("wall_s") > 0 and counters.pop("packets_per_wall_s") > 0
    assert result == again


def test_simultaneous_bursts_overflow_an_underloaded_switch(tmp_path):
    text = (ROOT / "examples" / "plans" / "switch.toml").read_text()
    synchronised = plan(write_plan(tmp_path, text), "--simulate", "50ms")
    independent = plan(write_plan(tmp_path, text.replace('"synchronised"', '"random"')), "--simulate", "50ms")
    assert stage(synchronised, "switch")["used"] < 0.75 and synchronised["dropped_share"] == 0
    assert synchronised["simulation"]["drops"][0]["stage"] == "switch"
    assert synchronised["simulation"]["packets"]["dropped"] > 0.1 * synchronised["simulation"]["packets"]["generated"]
    assert independent["simulation"]["packets"]["dropped"] < synchronised["simulation"]["packets"]["dropped"] / 10


def test_the_simulated_shot_rate_halves_as_the_formula_predicts():
    for trigger, rate in (("19.2 kHz", 19_200), ("19.4 kHz", 9_700)):
        result = plan("--paper", "0", "--trigger", trigger, "--simulate", "100ms")
        assert result["source"]["burst_hz"] == pytest.approx(rate)
        simulated = result["simulation"]
        assert (simulated["triggers"] - simulated["triggers_missed"]) / 0.1 == pytest.approx(rate, rel=2e-3)
