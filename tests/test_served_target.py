"""The page of a target: regions, initiators, queue pairs."""

import json

from memory_target import Target

from common import Page, Process, until

REGION = ["--region", "a=1M,rights=rw", "--serve", "127.0.0.1:0"]


def test_the_page_shows_queue_pairs_and_counts_as_the_report():
    with Target(*REGION) as target:
        page = Page(target)
        page.wait_for("waiting")
        assert not page.table("Initiators") and not page.table("Queue pairs")
        words = ["perf", "write", "--to", target.address, "--token", target.token, "--queue-pairs", "3"]
        with Process(*words, "--size", "4096", "--seconds", "600", "--json") as initiator:

            def busy_pairs():
                rows = [row for row in page.table("Queue pairs") if int(row["packets in"]) > 0]
                return rows if len(rows) == 3 else None

            pairs = until(busy_pairs, what="three busy queue pairs")
            assert {row["service"] for row in pairs} == {"RC"} and {row["state"] for row in pairs} == {"RTS"}
            assert len({row["queue pair"] for row in pairs} | {row["peer"] for row in pairs}) == 6, pairs
            assert [row["queue pairs"] for row in page.table("Initiators")] == ["3"]
            assert page.phase() == "running" and page.metrics()["shotline_initiators"] == 1
            initiator.interrupt().succeeded()
        until(lambda: page.metrics()["shotline_initiators"] == 0, what="the initiator has left")
        metrics = page.metrics()
        assert not page.table("Queue pairs")
        report = target.end_report()
    usage = report["regions"][0]
    for operation, count, size in (("write", "writes", "bytes_in"), ("read", "reads", "bytes_out")):
        labels = f'{{region="a",operation="{operation}"}}'
        assert metrics[f"shotline_region_operations_total{labels}"] == usage[count]
        assert metrics[f"shotline_region_passed_bytes_total{labels}"] == usage[size]
    assert metrics["shotline_packets_received_total"] == report["endpoint"]["packets_in"] > 0
    assert metrics["shotline_packets_sent_total"] == report["endpoint"]["packets_out"]
    assert metrics["shotline_initiators_welcomed_total"] == report["control"]["welcomed"] == 1


def test_the_page_counts_wrong_tokens_and_stops_the_target():
    with Target(*REGION) as target:
        page = Page(target)
        words = ["perf", "write", "--to", target.address, "--token", "0" * 32, "--seconds", "1"]
        with Process(*words) as initiator:
            assert initiator.end().code != 0
        rejected = 'shotline_connections_rejected_total{cause="wrong_token"}'
        until(lambda: page.metrics()[rejected] == 1, what="the wrong token is counted")
        assert "no triggers" in page.control(action="trigger")
        assert "Ends the target" in page.control(action="stop")
        ended = target.end()
        assert ended.code == 0 and json.loads(ended.stdout)["control"]["wrong_token"] == 1
