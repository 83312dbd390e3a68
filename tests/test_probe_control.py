"""A probe controlled manually: found, set up, started, triggered, stopped, and taken over from a killed receiver."""

import signal
import socket
import struct

import pytest
from file_state import wait_for_rows
from forge import Eavesdropper
from relay import Relay
from requirements import need_root

from common import (
    PACKET,
    WAIT_TIMEOUT_S,
    Probe,
    Process,
    Recorder,
    Recording,
    check_balanced,
    check_samples,
    record,
    run,
    until,
    verify,
)

SAMPLES = 100
PACKETS = 4  # per shot of 96 channels
ENDLESS = ("--rate-hz", 200, "--samples", SAMPLES, "--capacity", 20_000)
UNUSED_ADDRESS = "[::1]:9"  # the port of the protocol "discard", which is never an ephemeral port
SEQUENCE = 6  # the kind of request
UNKNOWN_REQUEST = 2  # the status of a refusal


def probe(verb, target, *arguments):
    address = target if isinstance(target, str) else target.address
    return run("probe", verb, address, "--json", *arguments)


def configure(target, port, *arguments):
    """Configures link 0 in plain UDP, to a port of the test."""
    flags = ["--framing", "udp", "--samples", SAMPLES, "--to", f"[::1]:{port}"]
    return probe("configure", target, *flags, *arguments)


class Listener:
    """Receives the plain-UDP packets of link 0."""

    def __enter__(self):
        self.socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind(("::1", 0))
        self.socket.settimeout(WAIT_TIMEOUT_S)
        self.port = self.socket.getsockname()[1]
        return self

    def __exit__(self, *_):
        self.socket.close()

    def records(self, shots):
        """Receives this many shots; returns number and transmit event of each end-of-shot record."""
        found = []
        while len(found) < shots:
            packet = self.socket.recv(PACKET + 256)
            if packet[5] & 1:  # the last packet of its shot
                record = packet[-64:]
                assert record[:4] == b"SHOT"
                found.append((*struct.unpack_from(">Q", record, 8), *struct.unpack_from(">I", record, 28)))
        return found


@pytest.fixture(scope="module", autouse=True)
def unanswered():
    """A request to an address without a probe. Its timeout of six seconds passes while the other tests run."""
    with Process("probe", "status", UNUSED_ADDRESS, "--json") as process:
        yield process


# --- manual control ----------------------------------------------------------------------------------


def test_a_probe_is_described():
    with Probe("--links", 1, "--samples", 800) as target:
        found = probe("describe", target).succeeded()
        assert probe("query", target).json == found
    assert (found["links"], found["channels"], found["max_samples"]) == (1, 96, 800)
    assert found["framings"] == ["ud", "counted", "udp"] and found["probe"] == target.address


def test_calls_of_one_user_share_a_token_and_set_the_destination():
    with Probe() as target, Listener() as listener:
        configured = configure(target, listener.port, "--stream", 77).succeeded()
        assert configured["packets_per_shot"] == PACKETS and configured["stream"] == 77
        assert probe("start", target, "--rate-hz", 200, "--shots", 5).succeeded()["first_shot"] == 0
        assert [number for number, _ in listener.records(5)] == [0, 1, 2, 3, 4]
        assert probe("start", target, "--rate-hz", 100).succeeded()["first_shot"] == 5
        listener.records(3)
        assert probe("status", target).succeeded()["running"]
        stopped = probe("stop", target).succeeded()
        assert not stopped["running"] and stopped["next_shot"] == 5 + stopped["links"][0]["shots_sent"]
        assert stopped["links"][0]["packets_sent"] == PACKETS * stopped["links"][0]["shots_sent"]
        assert stopped["links"][1]["shots_sent"] == 0, "link 1 was not configured"


def test_a_different_token_is_a_different_owner():
    with Probe() as target, Listener() as listener:
        configure(target, listener.port).succeeded()
        for verb in ["start", "stop"]:
            message = probe(verb, target, "--token", "0x1234").refused()
            assert "another receiver" in message and "--take-over" in message, message
        probe("start", target, "--token", "0x1234", "--take-over", "--rate-hz", 100).succeeded()
        assert "another receiver" in probe("stop", target).refused()
        assert "another receiver" in configure(target, listener.port).refused()
        assert not probe("stop", target, "--token", "0x1234").succeeded()["running"]


def test_shot_records_carry_the_transmit_sequence_in_order():
    with Probe("--first-shot", 1000) as target, Listener() as listener:
        configured = configure(target, listener.port, "--sequence", "5,6,65535").succeeded()
        assert configured["sequence"] == [5, 6, 65535]
        for first in (1000, 1007):
            probe("start", target, "--rate-hz", 200, "--shots", 7).succeeded()
            events = [5, 6, 65535, 5, 6, 65535, 5]
            assert listener.records(7) == list(zip(range(first, first + 7), events))
        assert configure(target, listener.port, "--sequence", "none").succeeded()["sequence"] == []
        probe("start", target, "--rate-hz", 200, "--shots", 2).succeeded()
        assert listener.records(2) == [(1014, 1014 % 16), (1015, 1015 % 16)], (
            "without a sequence the event is the index of the distinct shot"
        )


def test_a_probe_without_transmit_sequences_is_reported():
    def without_sequences(message):
        return (
            message[:5] + bytes([0x80 | SEQUENCE, UNKNOWN_REQUEST]) + message[7:16] + bytes(112)
            if message[5] == SEQUENCE
            else True
        )

    with Probe() as target, Relay(target, on_request=without_sequences) as relay, Listener() as listener:
        message = configure(relay, listener.port, "--sequence", "1,2").refused()
        assert "does not support transmit sequences" in message and "firmware" in message, message
        configure(relay, listener.port).succeeded()


def test_each_lost_datagram_is_retried_and_acted_on_once():
    seen = set()

    def on_second_copy(datagram):
        known = datagram in seen
        seen.add(datagram)
        return known

    with (
        Probe() as target,
        Relay(target, on_request=on_second_copy, on_reply=on_second_copy) as relay,
        Listener() as listener,
    ):
        configure(relay, listener.port, "--sequence", "9").succeeded()
        assert probe("start", relay, "--external").succeeded()["first_shot"] == 0
        assert probe("trigger", relay, "--command-only").succeeded()["shot"] == 0
        message = probe("trigger", relay, "--sequence", 5).refused()
        assert "seen the trigger number 5 before" in message, message
        assert listener.records(1) == [(0, 9)]
        stopped = probe("stop", relay).succeeded()
    assert stopped["next_shot"] == 1 and stopped["links"][0]["shots_sent"] == 1, stopped


def test_a_manual_trigger_takes_one_shot_or_is_refused():
    with Probe() as target, Listener() as listener:
        assert "start --external" in probe("trigger", target).refused()
        configure(target, listener.port).succeeded()
        probe("start", target, "--external").succeeded()
        for shot in range(3):
            command = probe("trigger", target, "--command-only").succeeded()
            taken = probe("trigger", target).succeeded()
            assert command["shot"] == taken["shot"] == shot
        assert [number for number, _ in listener.records(3)] == [0, 1, 2]
        probe("trigger", target, "--sequence", 7).succeeded()
        assert "seen the trigger number 7 before" in probe("trigger", target, "--sequence", 7).refused()
        probe("stop", target).succeeded()
        assert "start --external" in probe("trigger", target).refused()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--framing", "morse"], ["ud, counted, udp", "morse"]),
        (["--framing", "ud"], ["--queue-pair", "--q-key"]),
        (["--framing", "ud", "--queue-pair", "0x1000000", "--q-key", "1"], ["24 bits"]),
        (["--samples", "2001"], ["refused", "samples"]),
        (["--link", "2"], ["no such link"]),
        (["--to", "[::]:4791"], ["cannot send to this address"]),
    ],
)
def test_invalid_configurations_are_refused(flags, words):
    given = {"--framing": "udp", "--to": "[::1]:4791"} | dict(zip(flags[::2], flags[1::2]))
    with Probe() as target:
        message = probe("configure", target, *[word for pair in given.items() for word in pair]).refused()
        assert all(word in message for word in words), message
        assert "not configured" in probe("start", target).refused(), "a refused request must change nothing"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--sequence", "1,x"], ["0 to 65535", "x"]),
        (["--sequence", ",".join(["1"] * 56)], ["0 to 55", "56"]),
        (["--token", "mine"], ["0x11", "mine"]),
    ],
)
def test_wrong_flags_are_named(flags, words):
    end = run("probe", "configure", "--to", "[::1]:4791", *flags)
    assert end.code == 2 and all(word in end.stderr for word in words), end.stderr


@pytest.mark.parametrize("verb", ["discover", "describe", "configure", "start", "stop", "status", "trigger"])
def test_every_verb_has_help_with_an_example(verb):
    end = run("probe", verb, "--help")
    assert (
        end.code == 0 and "Example" in end.stdout and f"shotline probe {verb}" in end.stdout and "--json" in end.stdout
    )


# --- discovery ---------------------------------------------------------------------------------------


def test_discovery_finds_only_the_probe_on_loopback(loopback_netns):
    with Probe(listen="[::1]:47910", netns=loopback_netns) if loopback_netns else Probe() as target:
        flags = [] if loopback_netns else [target.address]
        found = until(lambda: discovered(*flags, netns=loopback_netns), what="an answer")
    assert target.address in [answer["probe"] for answer in found], found
    assert not loopback_netns or len(found) == 1


def discovered(*flags, **options):
    """Returns the probes that answer; may be empty, because a probe may only answer the next request."""
    end = run("probe", "discover", "--json", "--seconds", 0.3, *flags, **options)
    return end.json["probes"] if end.code == 0 else []


def test_discovery_without_an_answer_is_an_error_with_a_remedy(loopback_netns):
    if loopback_netns is None:
        pytest.skip("needs root (for a namespace without a probe)")
    message = run("probe", "discover", "--seconds", 0.3, netns=loopback_netns).refused()
    assert "no probe answered within 0.3 s" in message and "discover ADDRESS" in message, message


@pytest.mark.parametrize("listen", ["0.0.0.0:47910", "[::]:47910"])
def test_a_probe_across_a_network_is_found_by_broadcast(cable, listen):
    prefix = "10.91.7.1:" if listen.startswith("0") else "[fe80::"

    def answers():
        # Link-local addresses are missing in the first second of a network.
        return [answer for answer in discovered(netns=cable.names[1]) if answer["probe"].startswith(prefix)]

    with Probe(listen=listen, netns=cable.names[0]):
        (answer,) = until(answers, what="an answer over the cable")
        address = answer["probe"]
        assert address.endswith(":47910") and answer["model"] == "Shotline emulated probe"
        again = run("probe", "describe", address, "--json", netns=cable.names[1]).succeeded()
        assert again == answer, "the discovered address must be usable"


def test_a_probe_of_another_version_is_listed_with_an_error():
    def of_version_9(message):
        return message[:4] + bytes([9, message[5] | 0x80, 1]) + message[7:16] + bytes(112)

    with Probe() as target, Relay(target, on_request=of_version_9) as relay:
        found = until(lambda: discovered(relay.address), what="an answer")
    (answer,) = (answer for answer in found if answer["probe"] == relay.address)
    assert "version" in answer["error"], answer


# --- several receivers -------------------------------------------------------------------------------


def test_a_running_recording_is_protected_from_a_controller(tmp_path):
    path = tmp_path / "run.h5"
    with Probe() as target, Recorder(target, *ENDLESS, "--out", path) as recorder:
        wait_for_rows(path, 10)
        for verb, flags in [("stop", []), ("start", []), ("configure", ["--framing", "udp", "--to", "[::1]:4791"])]:
            message = probe(verb, target, *flags).refused()
            assert "another receiver" in message and "--take-over" in message, message
        assert probe("status", target).succeeded()["running"]
        stopped = probe("stop", target, "--take-over").succeeded()
        ended = recorder.end().cut_off("taken-over")
    assert ended["shots_complete"] == 2 * stopped["next_shot"] and not ended["drops"], ended
    check_balanced(ended, Recording(path))
    verify(path)


@pytest.mark.parametrize("framing", ["ud", "counted", "udp"])
def test_a_receiver_takes_over_from_a_killed_one_without_a_reset(tmp_path, framing):
    first, second = tmp_path / "first.h5", tmp_path / "second.h5"
    flags = [*ENDLESS, "--framing", framing]
    with Probe() as target:
        with Eavesdropper(target) as before, Recorder(before, *flags, "--out", first) as recorder:
            wait_for_rows(first, 10)
            recorder.signal(signal.SIGKILL)
            recorder.popen.wait()
        assert probe("status", target).succeeded()["running"], "the probe must still run, as no program stopped it"
        message = record(target, *flags, "--out", second).refused()
        assert "another receiver" in message and "--take-over" in message, message
        assert not second.exists() and probe("status", target).succeeded()["running"], (
            "a refused recorder must change nothing"
        )
        with Eavesdropper(target) as after:
            ended = record(after, *flags, "--take-over", "--shots", 20, "--out", second).succeeded()
        report = target.report()
    assert ended["shots_complete"] == ended["shots_sent"] == 40 and not ended["drops"], ended
    recording = Recording(second)
    numbers = recording.numbers()
    assert numbers == list(range(numbers[0], numbers[0] + 20)) and numbers[0] > Recording(first).numbers()[-1]
    assert report["next_shot"] == numbers[-1] + 1, "the probe must not have been restarted"
    for link in (0, 1):
        psns = [struct.unpack_from(">I", side.configured[link], 88)[0] for side in (before, after)]
        assert (psns[1] - psns[0]) % (1 << 24) == numbers[0] * PACKETS % (1 << 24), "sequence numbers must continue"
    check_balanced(ended, recording)
    check_samples(recording)
    verify(second)
    verify(first, finished=False)


def test_a_probe_is_taken_over_repeatedly(tmp_path):
    last = -1
    with Probe() as target:
        for turn in range(3):
            path = tmp_path / f"run{turn}.h5"
            flags = [*ENDLESS, "--framing", "counted", "--take-over", "--out", path]
            with Recorder(target, *flags) as recorder:
                wait_for_rows(path, 5)
                recorder.signal(signal.SIGKILL)
                recorder.popen.wait()
            numbers = Recording(path).numbers()
            assert numbers[0] > last, "each run must begin after the one before"
            last = numbers[-1]
            check_samples(Recording(path))


def test_a_receiver_that_was_taken_over_ends_with_its_shots(tmp_path):
    first, second = tmp_path / "first.h5", tmp_path / "second.h5"
    with Probe() as target, Recorder(target, *ENDLESS, "--out", first) as recorder:
        wait_for_rows(first, 10)
        ended = record(target, *ENDLESS, "--take-over", "--shots", 20, "--out", second).succeeded()
        assert ended["shots_complete"] == 40 and not ended["drops"], ended
        earlier = recorder.end().cut_off("taken-over")
    assert any("taken over the probe" in warning for warning in earlier["warnings"]), earlier
    assert Recording(second).numbers()[0] > Recording(first).numbers()[-1]
    check_samples(Recording(first))
    verify(second)


def test_requests_during_a_recording_cause_no_loss(tmp_path):
    path = tmp_path / "run.h5"
    with Probe() as target, Recorder(target, *ENDLESS, "--out", path) as recorder:
        wait_for_rows(path, 5)
        for _ in range(10):
            probe("status", target).succeeded()
            assert "another receiver" in probe("stop", target).refused()
        ended = recorder.interrupt().succeeded()
    assert ended["shots_complete"] == ended["shots_sent"] > 10 and not ended["drops"], ended
    verify(path)


def test_a_request_that_cannot_be_answered_does_not_end_a_probe():
    """The request comes from port 0, to which no reply can be sent."""
    need_root()
    query = struct.pack(">4sBBBBII112x", b"SHCM", 1, 1, 0, 0, 5, 7)
    with (
        Probe(listen="127.0.0.1:0") as target,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as raw,
    ):
        port = int(target.address.rpartition(":")[2])
        raw.sendto(struct.pack(">HHHH", 0, port, 8 + len(query), 0) + query, ("127.0.0.1", 0))
        assert probe("describe", target).succeeded()["links"] == 2


def test_a_missing_probe_is_one_clear_error(unanswered):
    message = unanswered.end().refused()
    assert UNUSED_ADDRESS in message and "answer" in message, message
