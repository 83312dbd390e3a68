"""What is seen of SpaceFibre links: reports of `target` and `perf`, and `shotline link` while traffic runs."""

import json
import select

import pytest
from initiator import Control
from memory_target import Target, perf, region
from test_spacefibre import endless, link_target, measure, wait_for_packets

from common import Process, run

SHORT = ("--group", 8, "--seconds", 0.2, "--json")
THREE = "vc=50%/0,vc=30%/1/0-47,vc=20%/2"


def watch(target, *arguments, **options):
    return run("link", target.address, "--token", target.token, *arguments, **options)


def readings(target, count, interval=0.1):
    """Returns this many readings of a target's links."""
    lines = watch(target, "--json", "--interval", interval, "--count", count).stdout.splitlines()
    assert len(lines) == count
    return [json.loads(line) for line in lines]


def check_balance(link):
    """Checks that the counters of the channels add up to those of the link."""
    counters, channels = link["counters"], link["channels"]
    for name in ("words_out", "words_in", "frames_in"):
        assert sum(channel[name] for channel in channels) == counters[name], name
    frames = sum(channel["frames_out"] for channel in channels)
    assert frames <= counters["frames_out"] <= frames + counters["items_resent"]
    assert all(channel["credit"] <= channel["input_words"] for channel in channels), "both ends have the same buffers"
    assert all(channel["granted"] <= channel["input_words"] for channel in channels)


@pytest.mark.parametrize("carrier", ["udp", "shm"])
def test_live_view_shows_rates_repairs_and_channels(tmp_path, carrier):
    transport = f"spacefibre:{carrier},lanes=2,{THREE},ber=1e-6"
    with link_target(tmp_path, transport, "--every", 0.1) as target:
        with endless(target, "--queue-pairs", 3, "--service-level", "0,1,2", "--group", 8) as initiator:
            wait_for_packets(target, 1000)
            seen = readings(target, 4)
            words = watch(target, "--interval", 0.1, "--count", 1).stdout
            row = initiator.interrupt().succeeded()
        report = target.end_report()
    for reading in seen:
        (link,) = reading["links"]
        assert reading["open"] == 1 and link["is_up"] and link["lanes"] == 2 and link["far_end_lanes"] is None
        assert (link["far_end"] is None) == (carrier == "shm")
        assert [channel["priority"] for channel in link["channels"]] == [0, 1, 2]
        assert [round(channel["share"], 3) for channel in link["channels"]] == [0.5, 0.3, 0.2]
        assert [channel["slots"] for channel in link["channels"]] == ["0-63", "0-47", "0-63"]
        check_balance(link)
    first, last = seen[0]["links"][0], seen[-1]["links"][0]
    assert last["counters"]["words_in"] > first["counters"]["words_in"]
    assert last["counters"]["retries_in"] > 0 and last["counters"]["crc16_errors"] > 0
    assert last["rates"]["in_gbps"] == pytest.approx(sum(rate["in_gbps"] for rate in last["rates"]["channels"]))
    assert last["rates"]["in_gbps"] > 0
    assert "2 lanes   up   scrambled" in words and "retries" in words and "50.0 %" in words
    # The initiator's end: what it has sent again, the target's end has dropped or never received.
    (near,) = row["spacefibre"]["links"]
    check_balance(near)
    assert near["counters"]["retries"] > 0 and near["counters"]["items_resent"] > 0
    assert all(channel["words_out"] > 0 for channel in near["channels"])
    ended = report["spacefibre"]["ended"]
    assert ended["count"] == 1 and report["spacefibre"]["links"] == []
    assert ended["counters"]["words_in"] <= near["counters"]["words_out"]
    packets = report["spacefibre"]["packets"]
    assert packets["packets_in"] == report["endpoint"]["packets_in"] and sum(packets["drops"].values()) == 0


def test_shares_are_kept_when_all_channels_are_busy(tmp_path):
    transport = "spacefibre:shm,lanes=4,vc=75%,vc=25%"
    levels = ("--queue-pairs", 2, "--service-level", "0,1", "--depth", 4, "--group", 4, "--seconds", 0.5, "--json")
    with link_target(tmp_path, transport) as target:
        row = measure(target, "write", *levels, size="64K").succeeded()
    first, second = [channel["words_out"] for channel in row["spacefibre"]["links"][0]["channels"]]
    # The windows of the queue pairs are full at the beginning and empty at the end, whatever the shares are.
    assert first > 1.3 * second, (first, second)


def test_watching_does_not_disturb_and_ends_with_its_target(tmp_path):
    with link_target(tmp_path, "spacefibre:lanes=1") as target:
        none = readings(target, 1)[0]
        assert none["links"] == [] and none["ended"]["count"] == 0
        rows = [measure(target, "write", *SHORT).succeeded() for _ in range(2)]
        with Process("link", target.address, "--token", target.token, "--json", "--interval", 0.1) as watcher:
            assert select.select([watcher.popen.stdout], [], [], 60)[0], "a reading"
            report = target.end_report()
            ended = watcher.end()
    assert ended.code == 1 and "the connection to the target broke" in ended.stderr, ended.stderr
    assert region(report, "data")["writes"] == sum(row["operations"] for row in rows)
    assert report["spacefibre"]["ended"]["count"] == 2 and report["control"]["welcomed"] == 4


def test_repairs_are_in_the_text_of_both_reports(tmp_path):
    transport = "spacefibre:lanes=4,ber=1e-6"
    target = run("target", "--region", "a=4K", "--transport", transport, "--listen", "127.0.0.1:0", "--seconds", 0.05)
    assert target.code == 0 and "links" not in target.stdout, "nothing was repaired"
    ended = perf(None, "write", "--transport", transport, "--group", 8, "--seconds", 0.2, "--size", "64K")
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("Links at this end: ")]
    assert " retries" in line and "sent again" in line


# --- requests of any initiator ---------------------------------------------------------------------------


def test_requests_for_links_are_limited_and_checked(tmp_path):
    with link_target(tmp_path, "spacefibre:lanes=4,vcs=2") as target:
        control = Control(target.address)
        welcome = control.hello(target.token)
        assert welcome["link"] == {"carrier": "udp", "lanes": 4, "channels": 2}
        answer = control.request(type="links", first=7)
        assert answer["type"] == "links" and answer["open"] == 0 and answer["links"] == []
        refused = []
        while not refused:  # more at once than are answered in a second, again if the target was too slow for that
            for _ in range(150):
                control.send_message(type="links", first=0)
            answers = [control.receive_message() for _ in range(150)]
            refused = [answer for answer in answers if "cause" in answer]
        refused = refused[0]
        assert refused["cause"] == "limit" and "at most 100 requests for links in a second" in refused["message"]
        assert control.request(type="links")["cause"] == "message"
        assert control.request(type="links", first=-1)["cause"] == "message"
        assert control.request(type="statistics")["type"] == "statistics", "other requests are served"
        target.end_report()


def test_a_wrong_token_shows_nothing(tmp_path):
    with link_target(tmp_path, "spacefibre:lanes=4") as target:
        message = run("link", target.address, "--token", "0" * 32).refused()
        assert "wrong token" in message, message


def test_targets_without_links_are_named(tmp_path):
    with link_target(tmp_path, "soft") as target:
        message = watch(target).refused()
        assert "no SpaceFibre links: start it with --transport spacefibre" in message, message


# --- ends that do not match ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "initiator", "words"),
    [
        ("spacefibre:lanes=8,vcs=2", "soft", ["with soft, found spacefibre", "--transport spacefibre:lanes=8,vcs=2"]),
        ("soft", "spacefibre", ["with spacefibre, found soft", "use --transport soft"]),
        ("spacefibre:shm", "shm", ["with shm, found spacefibre", "--transport spacefibre:shm,lanes=4,vcs=1"]),
        ("shm", "spacefibre:shm", ["with spacefibre, found shm", "use --transport shm"]),
        ("spacefibre:lanes=2", "spacefibre:lanes=4", ["lanes=4,vcs=1, found spacefibre:lanes=2,vcs=1"]),
        ("spacefibre:shm,lanes=2", "spacefibre:shm,lanes=4", ["found spacefibre:shm,lanes=2,vcs=1"]),
        ("spacefibre:vcs=3", "spacefibre:vc=50%,vc=50%", ["lanes=4,vcs=2, found spacefibre:lanes=4,vcs=3"]),
    ],
)
def test_ends_that_do_not_match_are_refused_with_the_remedy(tmp_path, target, initiator, words):
    listen = tmp_path / "target.sock" if "shm" in target else "127.0.0.1:0"
    with Target("--region", "data=1M,rights=rw", "--transport", target, listen=listen) as served:
        message = measure(served, "write", *SHORT, transport=initiator, limit=10).refused()
        assert all(word in message for word in words), message
        assert measure(served, "write", *SHORT, transport=target).succeeded()["operations"] > 0
        served.end_report()
