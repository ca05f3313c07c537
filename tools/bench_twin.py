"""Loads that twins predict from trials at half of the limit, held against searches for the limit.

python tools/bench_twin.py [CASE ...] (root; all cases: an hour): for each SUT a search with its own
ring, then three fresh trials at half of the limit found. Their twins predict the limit with the
same ring, a quarter and four times the ring; a search with each ring says how right they are.
Sinks are busy (`receive_ns`), as an IDS is: one that sleeps between packets (`service_rate_pps`)
seems idle to a twin as long as nothing waits. realmix needs NODROP_SHARED_DATA, a folder with
realmix.pcap and et.rules, unpacked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

Json = dict[str, Any]
FACTORS = (1.0, 0.25, 4.0)
"""Rings, as parts of the case's own."""
BUDGET_S = 100
TWINS = "NODROP_BENCH_TWINS"
"""Environment variable of a trial's process: the file that its twins' predictions are added to."""
RINGS = "NODROP_BENCH_RINGS"


@dataclass(frozen=True)
class Case:
    """A SUT, its ring in packets, and the key that sets the ring."""

    settings: Sequence[str]
    slots: int
    ring_key: str
    trace: str = "make:demo"
    by: str = "multiplier"

    def with_ring(self, factor: float) -> list[str]:
        return [*self.settings, f"{self.ring_key}={round(self.slots * factor)}"]


SINK = ('sut.kind="sink"', 'load.window="first"')
DEMO_RULES = f'sut.rules=["{Path(__file__).parents[1]}/experiments/demo.rules"]'
SURICATA = ('sut.kind="suricata"', 'load.window="first"', DEMO_RULES)
SHARED = os.environ.get("NODROP_SHARED_DATA", "")
BUSIEST = ('load.window="busiest"', "load.window_s=5")
MIX = ('sut.kind="suricata"', f'sut.rules=["{SHARED}/et.rules"]', *BUSIEST)
CASES: Mapping[str, Case] = {
    "sink, 100 us": Case([*SINK, "sut.receive_ns=100000"], 1024, "sut.ring_frames"),
    "sink, 100 us, constant load": Case(
        [*SINK, "sut.receive_ns=100000"], 1024, "sut.ring_frames", by="pps"
    ),
    "sink, 60 us, 240 us of port 80": Case(
        [*SINK, "sut.receive_ns=60000", "sut.costly_port=80", "sut.costly_times=4"],
        1024,
        "sut.ring_frames",
    ),
    "sink, 50 us, realmix": Case(
        ['sut.kind="sink"', "sut.receive_ns=50000", *BUSIEST],
        4096,
        "sut.ring_frames",
        trace=f"{SHARED}/realmix.pcap",
    ),
    "Suricata, V2": Case(SURICATA, 2048, "sut.ring_size"),
    "Suricata, V3": Case([*SURICATA, "sut.tpacket_v3=true"], 2048, "sut.ring_size"),
    "Suricata, realmix, 19,194 rules": Case(
        MIX, 2048, "sut.ring_size", trace=f"{SHARED}/realmix.pcap"
    ),
}


def nodrop(arguments: Sequence[str], **environment: str) -> bytes:
    """Standard output of nodrop in a process that notes what its twins say."""
    done = subprocess.run(
        [sys.executable, __file__, "--nodrop", *arguments],
        capture_output=True, check=False, timeout=900, env=os.environ | environment,
    )  # fmt: skip
    if done.returncode not in {0, 1, 6}:  # 6: no load is shown to be carried
        raise SystemExit(done.stderr.decode())
    return done.stdout


def noting() -> int:
    """Runs nodrop; each trial's twin adds its limit with each ring of RINGS to the file TWINS."""
    from nodrop.cli.main import main as command
    from nodrop.ledger.twin import RingObservation, limit_times
    from nodrop.measure import offering
    from nodrop.measure import queues as measured

    real = measured.forecast

    def forecast(seen, queues, *, faster, **more):  # type: ignore[no-untyped-def]
        found = real(seen, queues, faster=faster, **more)
        if TWINS in os.environ:
            one = RingObservation(load=1.0, queues=queues, faster=faster)
            rings = [None, *map(int, os.environ[RINGS].split(","))] if found.fits_times else []
            said = [limit_times(one, ring) for ring in rings]
            with Path(os.environ[TWINS]).open("a") as file:
                print(json.dumps([found.excess, *said]), file=file)
        return found

    vars(offering)["forecast"] = forecast
    sys.argv = ["nodrop", *sys.argv[2:]]
    command()
    return 0


def searched(case: Case, factor: float, out: str) -> Json:
    """The answer of `nodrop capacity --json` without loss."""
    settings = [word for one in case.with_ring(factor) for word in ("--set", one)]
    said = nodrop(
        ["capacity", case.trace, "--goal", "0", "--by", case.by, "--budget", f"{BUDGET_S}s",
         *settings, "--out", out, "--json"]
    )  # fmt: skip
    found: Json = json.loads(said)["goals"][0]
    return found


EXPERIMENT = """
name = "half-of-the-limit"
[load]
kind = "replay"
trace = "{trace}"
{load} = {value}
{loops}
[measure]
repetitions = 3
"""


def predicted(case: Case, load: float, out: str) -> Sequence[float | None]:
    """The middle prediction of three fresh trials at that load, for each ring of FACTORS; None
    where no twin reproduced its trial."""
    experiment, twins = Path(out, "half.toml"), Path(out, "twins.jsonl")
    loops = "duration_s = 5" if case.by == "pps" else "loops = 1"
    text = EXPERIMENT.format(trace=case.trace, load=case.by, value=load, loops=loops)
    experiment.write_text(text)
    rings = ",".join(str(round(case.slots * factor)) for factor in FACTORS[1:])
    settings = [word for one in case.with_ring(1.0) for word in ("--set", one)]
    environment = {TWINS: str(twins), RINGS: rings}
    nodrop(["run", str(experiment), *settings, "--out", f"{out}/half"], **environment)
    said = [json.loads(line)[1:] for line in twins.read_text().splitlines()]
    each = [[row[n] for row in said if row] for n in range(len(FACTORS))]
    times = [[one for one in some if one is not None] for some in each]
    return [load * median(some) if some else None for some in times]


def line(name: str, case: Case, factor: float, said: float | None, found: Json) -> str:
    fit = found["fit"] or {}
    right, bounds = fit.get("estimate"), [found["lower"], found["upper"]]
    low, high = (f"{end['value']:.4g}" if end else "none" for end in bounds)
    apart = f" ({said / right - 1:+.0%})" if said and right else ""
    ends = [f"{fit[end]:.4g}" if fit.get(end) else "none" for end in ("low", "high")]
    fits = f"{right:.4g} ({' to '.join(ends)})" if right else "none"
    shown = "refused" if said is None else f"{said:.4g}{apart}"
    return f"| {name} | {round(case.slots * factor)} | {shown} | {fits} | {low} to {high} |"


def main() -> int:
    names = sys.argv[1:] or list(CASES)
    print("| SUT | ring | predicted from half of the limit | searched | carried to too much |")
    print("|---|---|---|---|---|")
    for name in names:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as out:
            found = {factor: searched(case, factor, out) for factor in FACTORS}
            fit = found[1.0]["fit"]
            if fit is None:
                print(f"| {name} | {case.slots} | no limit was found | | |")
                continue
            said = predicted(case, fit["estimate"] / 2, out)
            for factor, one in zip(FACTORS, said, strict=True):
                print(line(name, case, factor, one, found[factor]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(noting() if sys.argv[1:2] == ["--nodrop"] else main())
