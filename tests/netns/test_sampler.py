"""The sampler in a namespace whose ports come and go."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.labs.netns import NetnsLab


def rows_until(output: IO[str], wanted: bool, port: str) -> Iterator[dict[str, Any]]:
    """Up to the row in which the port is there, or is not; the sampler's end fails the test."""
    for line in output:
        row = json.loads(line)
        assert row["type"] == "sample", row
        yield row
        if (port in row["links"]) is wanted:
            return
    raise AssertionError("the sampler ended")


def test_a_port_that_vanishes_and_comes_back_ends_nothing(node: Path, label: str) -> None:
    with DiskJournal.create(label) as journal, NetnsLab().up(journal) as link:
        enter = ["ip", "netns", "exec", f"nodrop-{label}-rcv"]
        port = link.rx.name

        def ip(*words: str) -> None:
            subprocess.run([*enter, "ip", *words], check=True, timeout=30)

        argv = [*enter, str(node), "sample", "--interval-ms", "10", "--port", port]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as sampler:
            assert sampler.stdout is not None
            list(rows_until(sampler.stdout, True, port))
            ip("link", "del", port)
            list(rows_until(sampler.stdout, False, port))
            assert port not in json.loads(sampler.stdout.readline())["links"]
            ip("link", "add", port, "type", "veth", "peer", "name", "other")
            [*_, last] = rows_until(sampler.stdout, True, port)
            assert last["links"][port]["rx_packets"] == 0
            sampler.terminate()
