"""Lines that anyone may write (long: a list of cases, each read alone): nodes, guests, Suricata,
JSON files. Each violation is one error that names its source: no hang, no traceback."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.errors import LabProblem, NodropError
from nodrop.measure.sampling import usage
from nodrop.protocol import ReplayResult
from nodrop.results.rundir import open_run
from nodrop.results.step_times import ALL, OWN, WAITING, harness_time
from nodrop.results.trial import RecordError, TrialRecord
from nodrop.testbed.hosts.guest import HEAD, LONGEST_BYTES, MOST_UNHEARD, GuestHost, GuestLine
from nodrop.testbed.hosts.node import NodeProcess
from nodrop.testbed.load.replay import offered_load
from nodrop.testbed.suts.sink import _counters
from nodrop.testbed.suts.suricata import counters, log
from nodrop.untrusted import json_text
from nodrop.untrusted.json_text import NotJson, decode, decode_object
from tests.made.rundirs import Fake, make_run

DEADLINE_S = 20.0
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64) + 1, 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=9,
)


@st.composite
def spoilt(draw: st.DrawFn, good: Any) -> Any:
    """A good answer in which one thing, at any depth, is missing or another."""
    if not isinstance(good, dict | list) or not good or draw(st.integers(0, 3)) == 0:
        return draw(VALUES)
    keys = list(good) if isinstance(good, dict) else list(range(len(good)))
    key = draw(st.sampled_from(keys))
    if isinstance(good, dict):
        rest = {k: v for k, v in good.items() if k != key}
        return rest if draw(st.booleans()) else {**rest, key: draw(spoilt(good[key]))}
    return [*good[:key], draw(spoilt(good[key])), *good[key + 1 :]]


# --- JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 65 + "]" * 65,
        '{"a":' * 900 + "1" + "}" * 900,
        "[" * 200_000,
        "9" * 5000,
        "1" + "0" * 400,
        str(2**64),
        str(-(2**64)),
        "-1e400",
        "[Infinity]",
        "\ud800",
        '{"a":1}x',
    ],
)
def test_what_is_outside_the_limits_is_one_error(text: str) -> None:
    with pytest.raises(NotJson):
        decode(text.encode(errors="surrogatepass"))


@pytest.mark.parametrize("text", ["[1]" * 0 + "[" * 64 + "]" * 64, str(2**64 - 1), "1e308", "null"])
def test_what_is_within_them_is_read(text: str) -> None:
    assert decode(text) == json.loads(text)


@given(st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(NotJson):
        decode(content)
    with suppress(NotJson):
        assert isinstance(decode_object(content), dict)


@pytest.mark.parametrize(
    ("table", "kind", "words"),
    [
        ({}, int, "has no a"),
        ({"a": True}, int, "True is not a whole number"),
        ({"a": "7"}, int, "'7' is not a whole number"),
        ({"a": 7.5}, int, "7.5 is not a whole number"),
        ({"a": []}, dict, r"\[\] is not an object"),
        ({"a": None}, str, "None is not a text"),
        ({"a": "x" * 1000}, float, "x… is not a number"),
    ],
)
def test_a_field_of_another_type(table: dict[str, Any], kind: type, words: str) -> None:
    with pytest.raises(NotJson, match=words):
        json_text.member(table, "a", kind)


RECORD = TrialRecord(
    cell={}, repetition=1, index=0, run="0001", valid=True, outcome="measured", verdict="x"
)


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "1.5", '"7"', "1e999"])
def test_a_record_with_an_absurd_number(number: str) -> None:
    line = RECORD.to_line().replace('"captured_packets":null', f'"captured_packets":{number}')
    with pytest.raises(RecordError):
        TrialRecord.from_line(line)


@given(spoilt(json.loads(RECORD.to_line())))
def test_any_line_is_a_record_or_is_refused(line: Any) -> None:
    with suppress(RecordError):
        TrialRecord.from_line(json.dumps(line))


# --- a node --------------------------------------------------------------------------------------

SCRIPT = """
import json, sys
def say(line):
    sys.stdout.write(line + "\\n"); sys.stdout.flush()
hello = {"type": "hello", "protocol": 2, "version": "0", "job": "any", "pid": 7}
say(json.dumps({**hello, **json.loads(sys.argv[2])}))
sys.stdin.readline()
for line in json.loads(sys.argv[1]):
    say(line)
sys.stdin.read()
"""
READY = json.dumps(
    {
        "type": "ready",
        "trace_packets": 3,
        "trace_bytes": 300,
        "trace_duration_ns": 9,
        "intended_packets": 3,
        "intended_duration_ns": None,
        "realtime": False,
        "backend": "af_packet_send",
        "replica_offsets_ns": [],
        "first_copy": 0,
        "copies": 1,
    }
)


def node(
    *lines: str, job: str = "replay", hello: Mapping[str, object] = {}, **spec: object
) -> NodeProcess:
    argv = [sys.executable, "-c", SCRIPT, json.dumps(lines), json.dumps(hello)]
    return NodeProcess(argv, {"job": job, **spec}, env=os.environ, where="a far host")


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{}",
        '{"type": ["ready"]}',
        '{"type": "x\\u001b[2J"}',
        '{"type": "ready", "n": ' + "9" * 5000 + "}",
        '{"type": "ready", "n": ' + "[" * 5000 + "]" * 5000 + "}",
        '{"type": "error"}',
        '{"type": "error", "message": {"a": 1}, "hint": ["x"], "kind": 7}',
        '{"type": "error", "message": "\\u001b]0;owned\\u0007"}',
        "\x1b[2J",
    ],
)
def test_what_a_node_must_not_say_is_one_error_that_names_it(line: str) -> None:
    with closing(node(line)) as job:
        with pytest.raises(LabProblem, match="node job 'replay' on a far host") as caught:
            job.prepare(timeout_s=DEADLINE_S)
        assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("hello", [{"pid": "7"}, {"version": None}, {"job": ["replay"]}])
def test_a_hello_that_is_none(hello: Mapping[str, object]) -> None:
    [field] = hello
    words = f"the hello of node job 'replay' on a far host makes no sense: {field}: "
    with closing(node(READY, hello=hello)) as job, pytest.raises(LabProblem, match=words):
        job.prepare(timeout_s=DEADLINE_S)


@pytest.mark.parametrize(
    "answer",
    [
        '{"mono_ns": "1"}',
        '{"mono_ns": 1}',
        '{"mono_ns": -1}',
    ],
)
def test_a_clock_that_is_none(answer: str) -> None:
    line = json.dumps({**json.loads(answer), "type": "clock", "id": 1})
    with closing(node(READY, line)) as job:
        job.prepare(timeout_s=DEADLINE_S)
        with pytest.raises(LabProblem, match="the clock of node job 'replay' on a far host"):
            job.clock(rounds=1)


@pytest.mark.parametrize("result", ["{}", '{"host": []}', '{"counters": {}}'])
def test_a_probe_that_does_not_answer(result: str) -> None:
    line = json.dumps({**json.loads(result), "type": "result"})
    with closing(node(line, job="probe", what=["host"])) as job:
        job.prepare(timeout_s=DEADLINE_S)
        with pytest.raises(LabProblem, match=r"its result (holds no host|makes no sense: )"):
            job.result(timeout_s=DEADLINE_S)


def test_a_node_that_never_stops_talking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodrop.testbed.hosts.node.MOST_BYTES", 10_000)
    samples = ['{"type": "sample", "mono_ns": 1, "sent_packets": 1}'] * 1000
    with closing(node(READY, *samples)) as job:
        job.prepare(timeout_s=DEADLINE_S)
        with pytest.raises(LabProblem, match="more than 10,000 bytes of events"):
            job.result(timeout_s=DEADLINE_S)


@pytest.mark.parametrize("extra", [1, 7])
@pytest.mark.parametrize("kind", ["ready", "result"])
def test_a_second_answer_to_one_spec_is_no_answer_to_the_next(kind: str, extra: int) -> None:
    """In a standing SUT it would become the next trial's books."""
    result = '{"type": "result", "tsc": {}}'
    ready = '{"type": "ready"}'
    lines = {"ready": [ready] * extra + [result], "result": [result] * (extra + 1)}[kind]
    with closing(node(ready, *lines, job="errand")) as job:
        job.prepare(timeout_s=DEADLINE_S)
        while kind == "result" and not job.ended():
            time.sleep(0.001)  # what comes after the next spec could be its answer
        with pytest.raises(LabProblem, match=f"sent a {kind} that no spec asked for"):
            job.result(timeout_s=DEADLINE_S)
            job.again({"job": "errand"}, timeout_s=DEADLINE_S)
            job.result(timeout_s=DEADLINE_S)


OFFERED = {
    "intended_packets": 3,
    "sent_packets": 3,
    "sent_bytes": 300,
    "refused_packets": {"full": 0},
    "schedule_error_us": {"p50": 1.0, "p99": 2.0, "max": 3.0},
    "first_sent_mono_ns": 1,
    "last_sent_mono_ns": 9,
    "cpu_s": 0.1,
    "achieved": {},
}
SINK = {
    "tp_packets": 7,
    "tp_drops": 1,
    "packets": 6,
    "bytes": 600,
    "per_thread": [{"tp_packets": 7, "tp_drops": 1, "packets": 6}],
}
ROW = {
    "mono_ns": 1,
    "processes": [
        {
            "pid": 1,
            "rss_bytes": 1,
            "rss_peak_bytes": 2,
            "threads": [{"tid": 1, "name": "W", "cpu_ns": 1}],
        }
    ],
    "tree": {"cpu_ns": 1},
    "cpus": [{"busy_ns": 1, "idle_ns": 1}],
    "cgroup": {"anon_bytes": 1, "file_bytes": 1, "memory_limit_hits": 0, "oom_kills": 0},
}
MARKS = {"offer": 0, "offered": 5, "drained": 9}


@given(spoilt(OFFERED))
def test_any_result_of_a_sender(said: Any) -> None:
    with suppress(NodropError):
        offered_load(said, None)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"refused_packets": {"\x1b[2J<script>": 1}}, "name of an error"),
        ({"refused_packets": {"enobufs": 0, "no buffers": 2}}, "name of an error"),
        ({"sent_packets": 4}, "sent more"),
        ({"intended_packets": 0, "sent_packets": 1}, "sent more"),
    ],
)
def test_what_no_sender_can_have_done(said: dict[str, Any], why: str) -> None:
    with pytest.raises(LabProblem, match=why):
        offered_load(cast(ReplayResult, {**OFFERED, **said}), None)


@given(spoilt(SINK))
def test_any_result_of_a_sink(said: Any) -> None:
    with suppress(NodropError):
        _counters(said, source="x")


@given(spoilt([ROW, {**ROW, "mono_ns": 4}, {**ROW, "mono_ns": 8}]))
def test_any_rows_of_a_sampler(rows: Any) -> None:
    with suppress(NodropError):
        usage(rows, MARKS, {})


# --- a guest -------------------------------------------------------------------------------------


@pytest.fixture
def guest() -> Iterator[tuple[GuestLine, socket.socket]]:
    ours, theirs = socket.socketpair()
    line = GuestLine(ours, pid=1)
    yield line, theirs
    theirs.close()
    line.close()


def frame(channel: int, kind: str, payload: bytes) -> bytes:
    return HEAD.pack(len(payload), channel, ord(kind)) + payload


BROKEN = [
    HEAD.pack(LONGEST_BYTES + 1, 1, ord("1")),
    HEAD.pack(2**31, 7, 255),
    frame(0, "h", b"[]"),
    frame(0, "h", b"\xff"),
    frame(0, "h", b"[" * 60_000),
    frame(1, "x", b"{}"),
    frame(1, "x", b'{"status": 0.5}'),
    frame(1, "f", b'{"message": 7}'),
    frame(1, "s", b"null"),
    frame(1, "s", b'{"pid": "1"}'),
    frame(0, "h", b"{}") * (MOST_UNHEARD + 2),
]


@pytest.mark.parametrize("said", BROKEN)
def test_a_guest_that_breaks_the_protocol_ends_every_wait(
    guest: tuple[GuestLine, socket.socket], said: bytes
) -> None:
    line, theirs = guest
    conversation = line.open({"run": {}}, out=lambda _: None, err=lambda _: None)
    theirs.sendall(said)
    assert conversation.wait(DEADLINE_S) != 0
    assert conversation.failure and "broke the protocol" in conversation.failure
    with pytest.raises(LabProblem, match="broke the protocol"):
        conversation.begin(DEADLINE_S)
    with pytest.raises(LabProblem):
        GuestHost(line, {}).learn_clock()


@pytest.mark.parametrize("mono_ns", ['"1"', "-1", "1.5"])
def test_a_guest_that_has_no_time(guest: tuple[GuestLine, socket.socket], mono_ns: str) -> None:
    line, theirs = guest
    theirs.sendall(frame(0, "t", f'{{"id": 0, "mono_ns": {mono_ns}}}'.encode()))
    with pytest.raises(LabProblem, match="the clock of guest"):
        GuestHost(line, {}).learn_clock()


def test_a_guests_words_command_no_terminal(guest: tuple[GuestLine, socket.socket]) -> None:
    line, theirs = guest
    conversation = line.open({"run": {}}, out=lambda _: None, err=lambda _: None)
    theirs.sendall(frame(1, "f", b'{"message": "\\u001b[2Jno"}'))
    with pytest.raises(LabProblem) as caught:
        conversation.begin(DEADLINE_S)
    assert "\x1b" not in str(caught.value)


# --- Suricata ------------------------------------------------------------------------------------

STATS = {
    "capture": {"kernel_packets": 9, "kernel_drops": 1},
    "decoder": {"pkts": 8, "bytes": 800},
    "threads": {"W#01": {"capture": {"kernel_packets": 9}}},
}


@given(spoilt(STATS))
def test_any_statistics(stats: Any) -> None:
    if isinstance(stats, dict):
        found = counters.from_stats(stats, source="x")
        for number in (found.captured_packets, found.decoded_packets, found.decoded_bytes):
            assert number is None or number >= 0


@pytest.mark.parametrize(
    ("number", "read"),
    [("9", 9), *((no, None) for no in ("1" + "0" * 400, "9" * 5000, '"9"', "-9", "9.5", "[]"))],
)
def test_a_counter_that_is_no_number_is_not_measured(
    tmp_path: Path, number: str, read: int | None
) -> None:
    line = json.dumps({"stats": STATS}).replace('"pkts": 8', f'"pkts": {number}')
    (tmp_path / "eve.json").write_text(line + "\n")
    found = counters.last_stats(tmp_path / "eve.json") or {}
    assert counters.from_stats(found, source="x").decoded_packets == read


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_statistics_that_are_no_file(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """A container may leave such things in its work folder."""
    make(tmp_path / "eve.json")
    with pytest.raises(OSError):
        counters.last_stats(tmp_path / "eve.json")


LINE = {
    "log_level": "Info",
    "engine": {
        "module": "x",
        "thread_name": "W",
        "message": "3 rules successfully loaded, 0 rules failed",
    },
}


@given(spoilt(LINE))
def test_any_line_of_the_engine_log(said: Any) -> None:
    """Rules of the good line are read, or none."""
    line = log.parse_line(json.dumps(said).encode(), seen_mono_ns=1)
    lines = [line] if line else []
    assert log.rules_loaded(lines) in (None, log.Rules(loaded=3, failed=0, skipped=None))
    assert (log.bad_rules(lines), log.exit_counts(lines)) == ([], {})
    assert log.rules_end(lines) in (None, line)


@pytest.mark.parametrize("digits", [19, 400, 5000])
def test_an_absurd_number_of_rules_is_no_statement(digits: int) -> None:
    words = f"{'9' * digits} rules successfully loaded, 0 rules failed"
    said = json.dumps({**LINE, "engine": {"message": words}}).encode()
    line = log.parse_line(said, seen_mono_ns=1)
    assert line is not None and log.rules_loaded([line]) is None


@pytest.mark.parametrize("details", ["7", '{"timings_s": 7}', '{"timings_s": {"launch": "x"}}'])
def test_timings_of_a_spoilt_trial_are_left_out(tmp_path: Path, details: str) -> None:
    path = make_run(tmp_path, Fake(cells=({"load.multiplier": 1},), repetitions=2))
    trial, other = sorted(path.glob("runs/*/trial.json"))
    whole = {"timings_s": {"provision": 2.0}}
    other.write_text(json.dumps({**json.loads(other.read_text()), "details": whole}))
    spoilt = {**json.loads(trial.read_text()), "details": json.loads(details)}
    for text in (json.dumps(spoilt), "{}"):
        trial.write_text(text)
        totals = {row.name: row.total_s for row in harness_time(open_run(path))}
        assert totals == {"provision": 2.0, OWN: 2.0, WAITING: 0.0, ALL: 2.0}
