"""Made-up data of the published layout, and the way to the real one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from nodrop.cli.main import exit_code

CHECKOUT = Path(__file__).resolve().parents[2]

BARE = "bm,made.pcap,{load},em2,enp34s0,4,5,1"
DOCKER = "docker,made.pcap,{load},em2,enp34s0,4,2g,0-3,5,1"
VM = "vm,made.pcap,{load},em2,enp34s0,4,2g,4,0-3,5,suricata-vm,dhcp,eth1,1"

SYSSTAT = ("Timestamp", "  Uptime", " NCPU", " %CPU", " %MEM")
NETSTAT = ("Timestamp", "  Uptime", " NIC", " sent.B", " recv.B", " sent.pkts", " recv.pkts")
PSSTAT = ("Timestamp", " Uptime", " %CPU", " mem.rss.KB", " nthreads")
EVE = (
    "uptime",
    "capture.kernel_packets",
    "capture.kernel_drops",
    "decoder.pkts",
    "decoder.bytes",
    "detect.alert",
)

Rows = Sequence[Sequence[object]]
EPOCH = 1_460_000_000


def published_data() -> Path:
    """The folder of the published data; skips the test if it is absent (it has no licence)."""
    folder = Path(os.environ.get("NODROP_PUBLISHED_DATA", CHECKOUT / "../shared/data/cs590-nfv"))
    if not (folder / "expected.json").is_file():
        pytest.skip(f"published data set not at {folder} (set NODROP_PUBLISHED_DATA)")
    return folder.resolve()


def write_workbook(
    path: Path, header: Sequence[str], samples: Mapping[int | str, Rows], *, summary: bool = True
) -> Path:
    """One workbook as the studies wrote them: a Summary of formulas, then a sheet per sample."""
    path.parent.mkdir(parents=True, exist_ok=True)
    workbook = openpyxl.Workbook()
    first = workbook.active
    assert first is not None
    workbook.remove(first)
    if summary:
        sheet = workbook.create_sheet("Summary")
        sheet.append(list(header))
        names = ",".join(f"'{name}'!B2" for name in samples)
        sheet.append([f"=MEDIAN({names})"] * len(header))
    for name, rows in samples.items():
        sheet = workbook.create_sheet(str(name))
        for row in [header, *rows]:
            sheet.append(list(row))
    workbook.save(path)
    return path


def sysstat(
    start: int, cpu: Sequence[float], *, mem: float = 10.0, ncpu: int = 4
) -> list[list[object]]:
    """A row each 4 s from `start` on."""
    return [[start + 4 * i, 4 * i, ncpu, value, mem] for i, value in enumerate(cpu)]


def netstat(
    start: int, sent: Sequence[int] = (), received: Sequence[int] = (), *, size: int = 100
) -> list[list[object]]:
    """Packets of `size` bytes and 4 of FCS."""
    rows = max(len(sent), len(received))
    out = [*sent, *[0] * (rows - len(sent))]
    inn = [*received, *[0] * (rows - len(received))]
    return [
        [start + 4 * i, 4 * i, "em2", o * (size + 4), n * (size + 4), o, n]
        for i, (o, n) in enumerate(zip(out, inn, strict=True))
    ]


def psstat(start: int, cpu: Sequence[float], threads: Sequence[int]) -> list[list[object]]:
    return [
        [start + 4 * i, 4 * i, value, 1000 + i, count]
        for i, (value, count) in enumerate(zip(cpu, threads, strict=True))
    ]


def eve(
    decoded: Sequence[int], *, behind: int = 0, drops: int = 0, alerts: int = 3
) -> list[list[object]]:
    """Records each 7 s; `behind` = how much later the capture counter is read."""
    last = len(decoded) - 1
    return [
        [
            8 + 7 * i,
            value - behind + (drops if i == last else 0),
            drops if i == last else 0,
            value,
            value * 100,
            alerts,
        ]
        for i, value in enumerate(decoded)
    ]


TRAFFIC = (0, 400, 400, 400, 400, 0)


def make_dataset(folder: Path, *, runs: int = 8, loads: Sequence[int] = (1, 2)) -> Path:
    """Bare metal and Docker at several loads, nothing wrong with them, runs in mixed order."""
    data = folder / "original" / "experiments" / "suricata" / "data"
    for place, (name, cpu) in enumerate(((BARE, 20.0), (DOCKER, 22.0))):
        for step, load in enumerate(loads):
            stem = name.format(load=load)
            # Each run's second is another in each cell, and cells take turns.
            starts = [EPOCH + 1000 * n + 100 * ((2 * step + place + n) % 4) for n in range(runs)]
            sent = [n * load for n in TRAFFIC]
            total = sum(sent)
            curve = [0.0, *[cpu * load] * 4, 1.0]
            channels: dict[str, tuple[Sequence[str], dict[int | str, Rows]]] = {
                "eve": (EVE, {s: eve([total // 2, total, total]) for s in starts}),
                "receiver,sysstat": (SYSSTAT, {s: sysstat(s, curve) for s in starts}),
                "sender,sysstat": (SYSSTAT, {s: sysstat(s, [50.0] * 6) for s in starts}),
                "netin,netstat": (NETSTAT, {s: netstat(s, received=sent) for s in starts}),
                "netout,netstat": (NETSTAT, {s: netstat(s, sent=sent) for s in starts}),
            }
            for channel, (header, samples) in channels.items():
                write_workbook(data / f"{stem},{channel}.xlsx", header, samples)
    return folder


def make_raw_run(folder: Path, *, epoch: int = EPOCH, load: int = 1) -> Path:
    """The logs of one run on bare metal, before anything was condensed."""
    logs = folder / f"logs,bm,{epoch},made.pcap,{load},em2,enp34s0,4,5,1"
    logs.mkdir(parents=True)
    sent = [n * load for n in TRAFFIC]
    files = {
        "sysstat.receiver.csv": (SYSSTAT, sysstat(epoch, [0, 20, 20, 20, 20, 1])),
        "sysstat.sender.csv": (SYSSTAT, sysstat(epoch, [50] * 6)),
        "netstat.enp34s0.csv": (NETSTAT, netstat(epoch, received=sent)),
        "netstat.tcpreplay.em2.csv": (NETSTAT, netstat(epoch, sent=sent)),
    }
    for name, (header, rows) in files.items():
        lines = [",".join(header), *(", ".join(map(str, row)) for row in rows)]
        (logs / name).write_text("\n".join(lines) + "\n")
    records = [
        {
            "event_type": "stats",
            "stats": {
                "uptime": 8 + 7 * i,
                "capture": {"kernel_packets": n, "kernel_drops": 0},
                "decoder": {"pkts": n, "bytes": n * 100},
                "detect": {"alert": 3},
            },
        }
        for i, n in enumerate((sum(sent) // 2, sum(sent)))
    ]
    records.insert(1, {"event_type": "alert"})
    (logs / "eve.json").write_text("".join(json.dumps(r) + "\n" for r in records))
    return logs


DATA = Path("original/experiments/suricata/data")


def run_json(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    assert exit_code(["import", "cs590", *map(str, words), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def skipped(found: dict[str, Any]) -> dict[str, int]:
    return {entry["reason"]: entry["count"] for entry in found["skipped"]}


def missing_channel(data: Path) -> None:
    (data / f"{BARE.format(load=1)},netout,netstat.xlsx").unlink()
