"""The Suricata adapter against every Suricata this machine has: images of the cache, else PATH."""

from __future__ import annotations

import shutil
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NodropError, TrialFailed
from nodrop.testbed.hosts.api import Link
from nodrop.testbed.hosts.journal import DiskJournal
from nodrop.testbed.images.image_cache import list_images
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.images.sut_bits import resolve_bits
from nodrop.testbed.labs.netns import NetnsLab
from nodrop.testbed.setups.api import Limits
from nodrop.testbed.setups.bare import Bare
from nodrop.testbed.suts.api import SutCounters
from nodrop.testbed.suts.suricata import Suricata
from nodrop.testbed.suts.suricata.running import RunningSuricata
from tests.depth import depth
from tests.known_answers.frames import ip, write
from tests.real_inputs import REALMIX_PACKETS, shared_data

MERGED = 1423
GOOD = 'alert tcp any any -> any any (msg:"any"; sid:9000001;)\n'
BAD = 'alert tcp any any -> any any (msg:"bad"; no_such_keyword:1; sid:9000002;)\n'


CHECKED = "stream.checksum-validation"


def syn(*, source: int, wrong: bool) -> bytes:
    """A frame with a SYN; `wrong`: its TCP checksum."""
    head = struct.pack("!HHIIBBHHH", 40_000, 80, 1, 0, 0x50, 2, 8192, 0, 0)
    addresses = ip(b"", source=source)[26:34]
    words = struct.unpack("!16H", addresses + struct.pack("!HH", 6, len(head)) + head)
    right = ~(sum(words) % 0xFFFF) & 0xFFFF
    checksum = struct.pack("!H", right ^ (0x5A5A if wrong else 0))
    return ip(head[:16] + checksum + head[18:], protocol=6, source=source)


IMAGES = [image.sha256 for image in list_images("suricata")]


@pytest.fixture(params=IMAGES or [None], ids=lambda sha256: (sha256 or "PATH")[:8], scope="module")
def bits(request: pytest.FixtureRequest) -> Bits:
    try:
        options = {"image": request.param} if request.param else {}
        return resolve_bits(options, "suricata", base=Path())
    except NodropError as missing:
        pytest.skip(f"no Suricata: {missing}")


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@contextmanager
def launched(bits: Bits, work: Path, **options: Any) -> Iterator[tuple[RunningSuricata, Link]]:
    (work / "sut").mkdir(parents=True)
    sut = Suricata(options, base=work)
    assert sut.problems(bits) == []
    with (
        DiskJournal.create() as journal,
        NetnsLab().up(journal) as link,
        Bare().provision(
            link, bits=bits, limits=Limits(), work=work / "sut", journal=journal
        ) as env,
    ):
        yield sut.launch(env), link


def replay(link: Link, trace: Path, *speed: str) -> None:
    if shutil.which("tcpreplay") is None:
        pytest.skip("needs tcpreplay")
    argv = ["tcpreplay", "-q", "-T", "nano", "-i", link.tx.name, *speed, str(trace)]
    link.tx.host.run(argv, timeout_s=60)


def carried(
    bits: Bits, work: Path, trace: Path, *, merged: int, **options: Any
) -> tuple[SutCounters, Any]:
    """One pass of the trace; the final counters and the facts."""
    with launched(bits, work, **options) as (running, link):
        running.wait_ready(timeout_s=60)
        replay(link, trace, "-p", "50000")
        running.drain(expected_packets=REALMIX_PACKETS - merged, timeout_s=60)
        facts = running.facts()
        return running.finish(timeout_s=30), facts


def balanced(final: SutCounters) -> bool:
    assert final.captured_packets is not None
    assert final.dropped_ring_full_packets is not None
    left = final.captured_packets - final.dropped_ring_full_packets
    return left == final.decoded_packets


@pytest.mark.parametrize(
    ("options", "merged"),
    [
        ({"threads": 2}, MERGED),
        ({"threads": 2, "defrag": "no"}, 0),
        depth({"threads": 2, "runmode": "autofp"}, MERGED),
        # Suricata gives the flag to cluster_flow groups only, and one thread joins no group.
        depth({"threads": 2, "cluster_type": "cluster_qm"}, 0),
        ({"threads": 1}, 0),
    ],
    ids=str,
)
def test_what_the_kernel_merges_is_what_the_adapter_says(
    bits: Bits, tmp_path: Path, real_trace: Path, options: dict[str, Any], merged: int
) -> None:
    final, facts = carried(bits, tmp_path, real_trace, merged=merged, **options)
    assert final.captured_packets == REALMIX_PACKETS - merged
    assert balanced(final)
    assert facts["defrag_effective"] is (merged > 0)
    assert Suricata(options, base=tmp_path).defrag is (merged > 0)


def test_frames_in_a_block_that_is_still_open_are_waited_for(
    bits: Bits, tmp_path: Path, real_trace: Path
) -> None:
    """They wake no thread until the block's time is over, and none would be decoded before."""
    slow = {"af-packet.0.block-timeout": 700}
    with launched(bits, tmp_path, threads=1, tpacket_v3=True, defrag="no", overrides=slow) as (
        running,
        link,
    ):
        running.wait_ready(timeout_s=60)
        replay(link, real_trace, "-t", "-L", "20")
        running.drain(expected_packets=20, timeout_s=60)
        final = running.finish(timeout_s=30)
    assert (final.captured_packets, final.decoded_packets) == (20, 20)


@pytest.mark.parametrize(("overrides", "left_out"), [({}, 12), ({CHECKED: "no"}, 0)])
def test_packets_left_out_for_their_checksum_are_counted_unless_the_setting_takes_them(
    bits: Bits, tmp_path: Path, overrides: dict[str, Any], left_out: int
) -> None:
    trace = write(tmp_path / "syn.pcap", [syn(source=n, wrong=n <= 12) for n in range(1, 21)])
    with launched(bits, tmp_path, threads=1, overrides=overrides) as (running, link):
        running.wait_ready(timeout_s=60)
        replay(link, trace, "-t")
        running.drain(expected_packets=20, timeout_s=60)
        final = running.finish(timeout_s=30)
    assert (final.decoded_packets, final.checksum_packets) == (20, left_out)
    assert f'"{CHECKED}"="no"' in final.checksum_knob


def test_ready_means_threads_and_sockets(bits: Bits, tmp_path: Path) -> None:
    with launched(bits, tmp_path, threads=2) as (running, _):
        ready = running.wait_ready(timeout_s=60)
        final = running.finish(timeout_s=30)
    assert [name for name in ready.evidence["threads"] if name.startswith("W#")]
    assert len(ready.evidence["sockets"]) == len(ready.evidence["rings"]) == 2
    activation_s = (ready.ready_mono_ns - running.process.launched_mono_ns) / 1e9
    assert sum(ready.phases_s.values()) == pytest.approx(activation_s, abs=0.01)
    assert final.captured_packets == final.decoded_packets == 0


def test_a_small_ring_is_really_small_and_drops_while_stopped(
    bits: Bits, tmp_path: Path, real_trace: Path
) -> None:
    with launched(bits, tmp_path, threads=2, ring_size=64, defrag="no") as (running, link):
        running.wait_ready(timeout_s=60)
        running.process.signal(signal.SIGSTOP)
        try:
            replay(link, real_trace, "-t")
        finally:
            running.process.signal(signal.SIGCONT)
        running.drain(expected_packets=REALMIX_PACKETS, timeout_s=60)
        facts = running.facts()
        final = running.finish(timeout_s=30)
    assert all(ring["frames"] < 128 for ring in facts["rings"])
    assert facts["notes"] == []
    assert final.captured_packets == REALMIX_PACKETS, "the drops are in it"
    assert final.dropped_ring_full_packets is not None
    assert final.dropped_ring_full_packets > 0.9 * REALMIX_PACKETS
    assert balanced(final)


def test_threads_that_suricata_does_not_grant_are_noted(bits: Bits, tmp_path: Path) -> None:
    with launched(bits, tmp_path, threads=500) as (running, _):
        running.wait_ready(timeout_s=60)
        facts = running.facts()
    assert facts["effective"]["threads"] == facts["capture_threads"] < 500
    assert facts["effective"]["runmode"] == "workers"
    assert facts["notes"][0].startswith("500 capture threads were asked for, ")


def test_a_rule_that_does_not_load_may_be_counted(bits: Bits, tmp_path: Path) -> None:
    (tmp_path / "some.rules").write_text(GOOD + BAD)
    with launched(bits, tmp_path, rules=["some.rules"]) as (running, _):
        running.wait_ready(timeout_s=60)
        facts = running.facts()
    assert (facts["rules_loaded"], facts["rules_failed"]) == (1, 1)
    assert facts["rules_failed_first"][0].startswith("some.rules line 2 (sid 9000002: ")


@pytest.mark.parametrize(
    ("named", "options", "words"),
    [
        ([GOOD, BAD * 3], {}, ""),
        ([BAD, GOOD + BAD], {"rules_errors": "error"}, "rules do not load: 0.rules line 1 "),
        ([GOOD * 2], {"rules_errors": "error"}, "Duplicate signature"),
        ([BAD, "<html>\n"], {}, "rules are named, and Suricata loads none: 0.rules line 1 "),
        (["# none\n" * 9], {}, "rules are named, and Suricata loads none"),
    ],
)
def test_rules_that_do_not_load_are_told_before_anything_is_touched(
    bits: Bits, tmp_path: Path, named: list[str], options: dict[str, Any], words: str
) -> None:
    for number, text in enumerate(named):
        (tmp_path / f"{number}.rules").write_text(text)
    rules = [f"{number}.rules" for number in range(len(named))]
    problems = Suricata({"rules": rules, **options}, base=tmp_path).problems(bits)
    assert (words in problems[0]) if words else problems == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stream:\n  memcap: lots\n", "Error parsing stream.memcap from conf file - lots"),
        ("detect:\n  profile: xyz\n", "invalid value for detect.profile: 'xyz'"),
        ("stream:\n  memcap: 32mb\n", ""),
    ],
)
def test_a_users_yaml_that_suricata_refuses_is_told_before_anything_is_touched(
    bits: Bits, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "own.yaml").write_text(f"%YAML 1.1\n---\n{text}")
    problems = Suricata({"config": "own.yaml"}, base=tmp_path).problems(bits)
    if not words:
        assert problems == []
        return
    (problem,) = problems
    assert problem.startswith(f"sut.config: {tmp_path}/own.yaml: `suricata -T` refuses it: ")
    assert words in problem


def test_a_users_yaml_keeps_its_rules_and_is_told_what_else_changed(
    bits: Bits, tmp_path: Path
) -> None:
    """One worker on one CPU, its own rules by their own names, wherever it runs."""
    (tmp_path / "mine.rules").write_text(GOOD + BAD)
    (tmp_path / "own.yaml").write_text(
        f"%YAML 1.1\n---\ndefault-rule-path: {tmp_path}\nrule-files: ['m*.rules', gone.rules]\n"
        "af-packet:\n  - interface: eth7\n    threads: auto\n"
    )
    with launched(bits, tmp_path, config="own.yaml", cpus="0") as (running, _):
        running.wait_ready(timeout_s=60)
        facts = running.facts()
    assert (facts["rules_loaded"], facts["rules_failed"]) == (1, 1)
    assert facts["rules_failed_first"][0].startswith("mine.rules line 2 (sid 9000002: ")
    assert facts["rules_lacking"] == [f"{tmp_path}/gone.rules"]
    assert facts["effective"]["threads"] == 1
    replaced = {row["key"]: row["now"] for row in facts["yaml_replaced"]}
    assert replaced["af-packet.0.threads"] == "1" and facts["yaml"] == "own.yaml"


def test_the_emerging_threats_rules(bits: Bits, tmp_path: Path, real_trace: Path) -> None:
    packed = shared_data() / "et-open-2019.rules.xz"
    if not packed.is_file():
        pytest.skip(f"no {packed}")
    # The default matcher needs 9 s of CPU to load them, this one a sixth of it.
    fast = {"mpm-algo": "ac", "spm-algo": "bm"}
    options = {"rules": [str(packed)], "overrides": fast, "threads": 2}
    final, facts = carried(bits, tmp_path, real_trace, merged=MERGED, **options)
    assert facts["rules_loaded"] + facts["rules_failed"] == 19_194
    assert 2 <= facts["rules_failed"] <= 3
    assert final.results["detect.alert"] > 0
    assert balanced(final)


def test_a_run_directory_deeper_than_a_socket_address(bits: Bits, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    with launched(bits, deep, threads=2) as (running, _):
        running.wait_ready(timeout_s=60)
        running.drain(expected_packets=0, timeout_s=30)
        assert running.finish(timeout_s=30).decoded_packets == 0


def test_killed_during_the_trial(bits: Bits, tmp_path: Path) -> None:
    with launched(bits, tmp_path, threads=2) as (running, _):
        running.wait_ready(timeout_s=60)
        running.process.signal(signal.SIGKILL)
        with pytest.raises(TrialFailed, match="SIGKILL"):
            running.drain(expected_packets=5, timeout_s=30)


def test_the_users_own_yaml(bits: Bits, tmp_path: Path, real_trace: Path) -> None:
    shipped = (bits.path if bits.kind == "image" else Path("/")) / "etc/suricata/suricata.yaml"
    if not shipped.is_file():
        pytest.skip(f"no {shipped}")
    # The yaml names rules that the package does not bring: without them it is no error.
    rules = {"overrides": {"rule-files": []}}
    (problem,) = Suricata({"config": str(shipped)}, base=tmp_path).problems(bits)
    assert "rule-files names /var/lib/suricata/rules/suricata.rules, which is not" in problem
    options = {"config": str(shipped), "threads": 2, **rules}
    final, _ = carried(bits, tmp_path, real_trace, merged=MERGED, **options)
    assert final.captured_packets == REALMIX_PACKETS - MERGED
    assert balanced(final)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("stream.memcap=lots", "Error parsing stream.memcap from conf file - lots"),
        ("flow.memcap=many", "flow.memcap"),
        ("detect.profile=xyz", "invalid value for detect.profile: 'xyz'"),
    ],
)
def test_an_override_that_suricata_refuses_is_told_before_anything_is_touched(
    bits: Bits, tmp_path: Path, override: str, words: str
) -> None:
    key, value = override.split("=")
    suricata = Suricata({"overrides": {key: value}}, base=tmp_path)
    (problem,) = suricata.problems(bits)
    assert problem.startswith("sut.overrides: `suricata -T` refuses it: ") and words in problem


def test_overrides_that_suricata_takes_are_no_problem(bits: Bits, tmp_path: Path) -> None:
    overrides = {"stream.memcap": "96mb", "af-packet.0.block-size": 65536}
    assert Suricata({"overrides": overrides}, base=tmp_path).problems(bits) == []
