"""Books of captures, from looks that were made up: what closes, and what nobody can say."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.drops.capture_books import AccountRange, Balance, CaptureBooks, rise
from nodrop.drops.outlets import closing, ending, lines
from nodrop.drops.watching import DropsInterval, Watch, intervals

NS = 4026531840


def fill(packets: int, full: int, of: int, oldest_real_ns: int | None = None) -> dict[str, Any]:
    return {"packets": packets, "full": full, "of": of, "oldest_real_ns": oldest_real_ns}


def ring(blocks: int = 13, retire_ms: int = 10) -> dict[str, Any]:
    return {
        "version": 3,
        "block_bytes": 32768,
        "blocks": blocks,
        "frame_bytes": 1616,
        "frames": 260,
        "head": 0,
        "retire_ms": retire_ms,
    }


def sock(inode: int, packets: int, drops: int, **more: Any) -> dict[str, Any]:
    counted = {"tp_packets": packets, "tp_drops": drops, "tp_freezes": 0}
    return {
        "inode": inode,
        "pid": 7,
        "fd": inode,
        "namespace": NS,
        "ifindex": 2,
        "ring": ring(),
        "fanout": {"id": 99, "kind": 0, "defrag": False},
        "selective": False,
        "receive_queue_bytes": None,
        "counted": counted,
        "waiting": [fill(0, 0, 13)] * 2,
        **more,
    }


def port(rx: tuple[int, int], tx: int = 0, kind: str | None = None, **stats: int) -> dict[str, Any]:
    names = (
        "rx_dropped", "rx_missed_errors", "rx_errors", "rx_crc_errors", "rx_length_errors",
        "rx_frame_errors", "rx_fifo_errors", "rx_packets", "rx_bytes",
    )  # fmt: skip
    return {
        "namespace": NS,
        "index": 2,
        "name": "eth1",
        "link": {
            "mtu": 1500,
            "kind": kind,
            "up": True,
            "carrier": True,
            "carrier_changes": 2,
            "stats": dict.fromkeys(names, 0) | stats,
        },
        "table": None,
        "ethtool": {},
        "rx_packets": list(rx),
        "tx_packets": [tx, tx],
    }


def thread(name: str, ran_s: float, waited_s: float, state: str = "S") -> dict[str, Any]:
    return {
        "tid": 70 + len(name),
        "name": name,
        "cpu_ns": round(ran_s * 1e9),
        "wait_ns": round(waited_s * 1e9),
        "state": state,
        "last_cpu": 1,
    }


def program(name: str = "Suricata-Main", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "arguments": [],
        "stopped": False,
        "usage": {"start_ticks": 5, "throttled_ns": {}},
        "threads": [thread("W#01", 0.0, 0.0)],
        "suricata": None,
        **more,
    }


def said(packets: int, drops: int, silent: str | None = None, **more: Any) -> dict[str, Any]:
    own = {"packets": packets, "drops": drops, "invalid_checksums": 0}
    return {
        "socket": "/run/s.socket",
        "silent": silent,
        "mode": "AF_PACKET_DEV",
        "ports": {"eth1": own},
        "ports_before": {"eth1": own},
        "counters": None,
        "counters_mono_ns": None,
        "memcaps": {},
        **more,
    }


def look(at_s: float, **more: Any) -> Any:
    return {
        "mono_ns": round(at_s * 1e9),
        "real_ns": round((1e9 + at_s) * 1e9),
        "took_ns": 900_000,
        "softnet": [{"cpu": 0, "dropped": 0}],
        "sockets": [],
        "ports": [],
        "reassembly": {},
        "programs": {},
        "namespace": NS,
        "driven": [],
        "missing": [],
        **more,
    }


def balance(*looks: Any) -> Balance:
    books = CaptureBooks()
    for one in looks[:-1]:
        books.look(one)
    return books.look(looks[-1])[0]


def watched(*looks: Any) -> DropsInterval:
    watch = Watch()
    found = [watch.look(one) for one in looks]
    assert found[-1] is not None
    return found[-1]


@pytest.mark.parametrize(
    ("before", "after", "rose"),
    [
        (7, 12, 5),
        (12, 7, 7),  # began anew
        (0xFFFF_FF00, 0x10, 0x110),  # 32 bits
        (1 << 40, 5, 5),
        (0x9000_0000, 0x8FFF_FFFF, 0x8FFF_FFFF),
    ],
)
def test_a_counter_that_wraps_or_begins_anew(before: int, after: int, rose: int) -> None:
    assert rise(before, after) == rose


@pytest.mark.parametrize(("owner", "kernel"), [(900, (60, 40)), (0, (700, 300)), (1000, (0, 0))])
def test_whoever_has_the_counts_the_sum_is_the_same(owner: int, kernel: tuple[int, int]) -> None:
    drops_read = 300 - kernel[1] if owner else 0
    first = look(
        0,
        sockets=[sock(41, 0, 0)],
        ports=[port((500, 500))],
        programs={"7": program(suricata=said(0, 0))},
    )
    last = look(
        1,
        sockets=[sock(41, *kernel, waiting=[fill(90, 4, 13), fill(110, 5, 13)])],
        ports=[port((1498, 1503))],
        programs={"7": program(suricata=said(owner, drops_read))},
    )
    found = balance(first, last)
    assert found.arrived == AccountRange(1000, 1000)
    assert found.dropped == found.dropped_now == 300
    assert found.read == AccountRange(590, 610)
    assert found.residual == AccountRange(-2, 3) and found.closed


@pytest.mark.parametrize(
    ("before", "waiting", "passed", "dropped", "words"),
    [
        (91, 91, 0, 1448, "1,448 arrived (+91 that waited before), 1,448 dropped, 91 wait, 0 read"),
        (90, 0, 100, 0, "100 arrived (+90 that waited before), 0 dropped, 0 wait, 190 read"),
        (0, 9, 100, 7, "107 arrived, 7 dropped, 9 wait, 91 read"),
    ],
)
def test_packets_that_waited_at_the_first_look_stand_beside_those_that_arrived(
    before: int, waiting: int, passed: int, dropped: int, words: str
) -> None:
    """The line adds up: they are not among those that arrived, and wait or are read."""

    def at(n: int, packets: int, drops: int, waits: int) -> Any:
        sockets = [sock(41, packets, drops, waiting=[fill(waits, 0, 13)] * 2)]
        came = packets + drops
        return look(n, sockets=sockets, ports=[port((came, came))], programs={"7": program("x")})

    found = watched(at(0, 500, 0, before), at(1, 500 + passed, dropped, waiting))
    assert any(words in line for line in lines(found))
    (kept,) = found.answer.captures
    assert kept.waited_before_packets == (before, before)


def test_packets_that_are_nowhere_keep_the_books_open() -> None:
    first = look(
        0,
        sockets=[sock(41, 0, 0)],
        ports=[port((0, 0))],
        programs={"7": program(suricata=said(0, 0))},
    )
    last = look(
        1,
        sockets=[sock(41, 60, 0)],
        ports=[port((100, 101))],
        programs={"7": program(suricata=said(20, 0))},
    )
    found = balance(first, last)
    assert found.residual == AccountRange(20, 21) and found.closed is False


def test_an_owner_that_reads_its_counters_unheard_closes_nothing() -> None:
    looks = [
        look(
            n,
            sockets=[sock(41, *counts)],
            ports=[port((rx, rx))],
            programs={"7": program("tcpdump")},
        )
        for n, (counts, rx) in enumerate([((0, 0), 0), ((80, 20), 100), ((10, 0), 150)])
    ]
    exact = balance(*looks[:2])
    assert exact.closed and exact.arrived == AccountRange(100, 100) and not exact.at_least
    found = balance(*looks)
    assert found.residual is None and found.at_least and found.read is None
    assert found.arrived == AccountRange(110, 110) and found.dropped == 20
    # Read so often that no fall is seen: fewer than came, and not open.
    often = balance(
        looks[0], look(1, **{**looks[1], "ports": [port((500, 500))], "mono_ns": 10**9})
    )
    assert often.residual is None and often.at_least


def test_a_silent_suricata_keeps_what_it_said_and_says_at_least() -> None:
    def at(n: int, counts: tuple[int, int], packets: int, silent: str | None, rx: int) -> Any:
        told = said(packets, 0, silent)
        return look(
            n,
            sockets=[sock(41, *counts)],
            ports=[port((rx, rx))],
            programs={"7": program(suricata=told, stopped=silent == "it is stopped")},
        )

    start = at(0, (0, 0), 10, None, 0)
    stopped = at(1, (70, 30), 10, "it is stopped", 100)
    blocked = at(2, (5, 0), 10, "no answer within 200 ms", 150)
    heard = at(3, (5, 0), 205, None, 200)
    assert balance(start, stopped).closed
    unheard = balance(start, stopped, blocked)
    assert unheard.residual is None and unheard.arrived == AccountRange(105, 105)
    again = balance(start, stopped, blocked, heard)
    assert again.closed and again.arrived == AccountRange(200, 200)


@pytest.mark.parametrize(("left", "drops_left"), [(400, 50), (0, 0), (900, 90)])
def test_a_look_in_which_the_owner_reads_its_counters_is_bounded_by_its_sums_around_it(
    left: int, drops_left: int
) -> None:
    """Under loss Suricata reads them all the time: of 900 packets, 90 of them dropped, any part."""
    before, after = said(1000, 100), said(1900 - left, 190 - drops_left)
    looks = [
        look(
            n,
            sockets=[sock(41, packets, drops)],
            ports=[port((rx, rx))],
            programs={"7": program(suricata=told)},
        )
        for n, packets, drops, rx, told in (
            (0, 0, 0, 0, said(0, 0)),
            (1, 0, 0, 1000, before),
            (2, left - drops_left, drops_left, 1900,
             {**after, "ports_before": before["ports"]}),
        )
    ]  # fmt: skip
    found = balance(*looks)
    assert found.residual == AccountRange(0, 900 - left) and found.arrived == AccountRange(
        1000 + left, 1900
    )
    assert found.dropped == 100 + drops_left <= 190


@pytest.mark.parametrize(("counted", "packets"), [((5, 0), 33_000), ((900, 40), 2000)])
def test_one_that_answers_and_then_falls_silent_is_not_counted_twice(
    counted: tuple[int, int], packets: int
) -> None:
    """Within one look: its sums have what it read, though it is silent now."""
    rx = packets + sum(counted)
    looks = [
        look(
            n,
            sockets=[sock(41, *counts)],
            ports=[port((came, came))],
            programs={"7": program(suricata=told)},
        )
        for n, counts, came, told in (
            (0, (0, 0), 0, said(0, 0)),
            (1, (packets, 0), packets, said(0, 0)),
            (2, counted, rx, said(packets, 0, "no answer within 200 ms")),
            (3, counted, rx, said(packets, 0)),
        )
    ]
    silent = balance(*looks[:3])
    assert silent.at_least and silent.arrived == AccountRange(rx, rx)
    again = balance(*looks)
    assert again.closed and again.arrived == AccountRange(rx, rx) and again.dropped == counted[1]


@pytest.mark.parametrize(("read", "drops", "waits"), [(700, 250, 50), (0, 990, 10)])
def test_by_libpcap_what_suricata_counts_is_what_it_read(read: int, drops: int, waits: int) -> None:
    looks = [
        look(
            n,
            sockets=[sock(41, 0, n * 20, waiting=[fill(n * waits, 1, 13)] * 2)],
            ports=[port((n * 1000, n * 1000))],
            programs={
                "7": program(suricata={**said(n * read, n * (drops - 20)), "mode": "PCAP_DEV"})
            },
        )
        for n in (0, 1)
    ]
    found = balance(*looks)
    assert found.closed and found.residual == AccountRange(0, 0)
    assert found.dropped == drops and found.read == AccountRange(read, read)


def test_books_begin_when_the_owner_has_begun() -> None:
    """A Suricata that starts throws away, counts too, what came before its engine."""

    def at(n: int, packets: int, ports: dict[str, Any], rx: int) -> Any:
        told = {**said(0, 0), "ports": ports, "ports_before": ports}
        return look(
            n,
            sockets=[sock(41, packets, 0)],
            ports=[port((rx, rx))],
            programs={"7": program(suricata=told)},
        )

    own = said(0, 0)["ports"]
    for lost in (75, 344):
        starting = at(0, lost, {}, lost)
        assert balance(starting, at(1, 0, own, lost)).residual is None
        assert balance(starting, at(1, 0, own, lost), at(2, 9, own, lost + 9)).closed


def test_what_is_heard_after_the_port_was_read_may_be_more() -> None:
    for later in (307, 20):
        looks = [
            look(
                n,
                sockets=[sock(41, 0, 0, counted=None)],
                ports=[port((rx, rx))],
                programs={"7": program(suricata=said(packets, 0))},
            )
            for n, (rx, packets) in enumerate([(1000, 1000), (2000, 2000 + later)])
        ]
        found = balance(*looks)
        assert found.residual and found.residual.holds(0) and found.closed is None


@pytest.mark.parametrize(
    ("rx", "residual", "closed", "words"),
    [
        ((36_000, 39_000), (-3000, 0), None, "within ±3,000: too far apart to say"),
        ((39_000, 40_607), (0, 1607), None, "within ±1,607: too far apart to say"),
        ((39_000, 39_300), (0, 300), True, "closed (0…300)"),
        ((100, 150), (0, 50), True, "closed (0…50)"),
        ((40_000, 42_000), (1000, 3000), False, "OPEN: residual 1,000…3,000"),
    ],
)
def test_bounds_too_far_apart_do_not_close(
    rx: tuple[int, int], residual: tuple[int, int], closed: bool | None, words: str
) -> None:
    arrived = rx[0] - residual[0]
    found = balance(
        *(
            look(
                n,
                sockets=[sock(41, n * arrived, 0)],
                ports=[port((n * rx[0], n * rx[1]))],
                programs={"7": program(suricata=said(0, 0))},
            )
            for n in (0, 1)
        )
    )
    assert found.residual == AccountRange(*residual)
    assert found.closed is closed and closing(found).startswith(words)


@pytest.mark.parametrize(("defrag", "closed"), [(True, True), (False, False)])
def test_what_reassembly_merged_is_no_residual(defrag: bool, closed: bool) -> None:
    def at(n: int, rx: int, arrived: int, requests: int, oks: int) -> Any:
        group = {"id": 99, "kind": 0, "defrag": defrag}
        one = {"requests": requests, "oks": oks, "fails": 0, "timeouts": 0}
        return look(
            n,
            sockets=[sock(41, arrived, 0, fanout=group)],
            ports=[port((rx, rx))],
            reassembly={str(NS): [one, one]},
            programs={"7": program(suricata=said(0, 0))},
        )

    found = balance(at(0, 0, 0, 900, 300), at(1, 1000, 986, 930, 316))
    assert found.closed is closed
    assert found.merged == (AccountRange(14, 14) if defrag else AccountRange(0, 0))


def test_threads_of_a_group_share_and_lone_sockets_each_have_all() -> None:
    for fanout, packets in (({"id": 9, "kind": 0, "defrag": False}, 50), (None, 100)):
        looks = [
            look(
                n,
                sockets=[sock(i, n * packets, 0, fanout=fanout) for i in (41, 42)],
                ports=[port((n * 100, n * 100))],
                programs={"7": program("snort")},
            )
            for n in (0, 1)
        ]
        assert balance(*looks).closed


def test_a_filter_or_no_counters_is_said_and_not_guessed() -> None:
    for more, words in (
        ({"selective": True}, "its filter leaves packets out"),
        ({"counted": None}, "the socket is not visible"),
        ({"ifindex": 0}, "the port is not visible"),
    ):
        watch = Watch()
        for n in (0, 1):
            found = watch.look(
                look(
                    n,
                    sockets=[sock(41, n * 5, 0, **more)],
                    ports=[port((n * 100, n * 100))],
                    programs={"7": program("tcpdump")},
                )
            )
        assert found is not None and found.balances[0].residual is None
        assert words in next(iter(lines(found)))


def test_without_ring_counters_the_owners_steps_close_at_rest_and_meanwhile() -> None:
    books = CaptureBooks()
    closed = []
    # 1,000 a second until 4 s; the owner's sum is a second late.
    for n in range(9):
        rx = min(n, 4) * 1000
        late = min(max(n - 1, 0), 4) * 1000
        found = books.look(
            look(
                n,
                sockets=[sock(41, 0, 0, counted=None, ring=None, fanout=None)],
                ports=[port((rx, rx))],
                programs={"7": program(suricata=said(late, 0))},
            )
        )
        closed += [(one.closed, one.residual) for one in found]
    assert all(residual and residual.holds(0) for _, residual in closed)
    assert closed[-1] == (True, AccountRange(0, 0))


def test_a_restart_begins_new_books_and_keeps_what_was_lost() -> None:
    watch = Watch()

    def at(n: int, pid: int, inode: int, drops: int) -> Any:
        return look(
            n,
            sockets=[sock(inode, 10, drops, pid=pid)],
            ports=[port((n * 100, n * 100))],
            programs={str(pid): program("snort")},
        )

    watch.look(at(0, 7, 41, 0))
    watch.look(at(1, 7, 41, 90))
    came = watch.look(at(2, 8, 55, 4))
    assert came is not None and came.balances == []
    assert came.answer.notes == [
        "snort 7 has ended, or captures no more",
        "snort 8 captures; its books begin here",
    ]
    found = watch.look(at(3, 8, 55, 10))
    assert found is not None
    assert {(row.where, row.total) for row in found.answer.places} == {
        ("snort 7 on eth1", 90),
        ("snort 8 on eth1", 6),
    }
    gone = watch.look(look(4))
    assert gone is not None and gone.balances == []
    last = [(one.reading.name, one.dropped) for one in gone.ended]
    assert last == [("snort 7", 90), ("snort 8", 6)]
    assert "port eth1: nobody captures there any more, or it is gone" in gone.answer.notes


@pytest.mark.parametrize(("heard", "read_at_end"), [(970, 0), (300, 45)])
def test_the_last_books_of_one_that_ends_are_those_before_it_fell_silent(
    heard: int, read_at_end: int
) -> None:
    """A program that ends reads its counters once more and answers nobody."""
    watch = Watch()
    for n, (counted, packets, silent, rx) in enumerate(
        [
            (0, 0, None, 0),
            (heard - 100, 100, None, heard),
            (read_at_end, 100, "no answer within 200 ms", heard + 202),
        ]
    ):
        watch.look(
            look(
                n,
                sockets=[sock(41, counted, 0)],
                ports=[port((rx, rx))],
                programs={"7": program(suricata=said(packets, 0, silent))},
            )
        )
    gone = watch.look(look(3))
    assert gone is not None
    (last,) = gone.ended
    assert last.closed and last.arrived == last.offered == AccountRange(heard, heard)
    assert last.unsaid_offered == AccountRange(202, 202), "what came after its last answer"
    later = watch.look(look(9))
    assert later is not None and later.ended[0].ended_real_ns == gone.answer.real_ns, "once"


def test_drops_between_the_last_answer_and_the_end_are_said_and_written() -> None:
    watch = Watch()
    for n, (counted, silent, rx) in enumerate(
        [((0, 0), None, 0), ((900, 5), None, 905), ((960, 45), "Broken pipe (os error 32)", 1107)]
    ):
        watch.look(
            look(
                n,
                sockets=[sock(41, *counted)],
                ports=[port((rx, rx))],
                programs={"7": program(suricata=said(0, 0, silent))},
            )
        )
    gone = watch.look(look(3))
    assert gone is not None
    (line,) = (line for line in lines(gone) if "(ended) " in line)
    assert "905 came, " in line and " 5 dropped, " in line
    said_so = "; then 202 came, at least 40 of them dropped: it ended, and said no more"
    assert line.endswith(said_so)
    summary = [line for line in ending(gone, 0) if line.startswith("  (ended at ")]
    assert len(summary) == 1 and summary[0].endswith(said_so)
    (kept,) = gone.answer.ended
    assert (kept.unsaid_offered_packets, kept.unsaid_dropped_packets) == ((202, 202), 40)
    assert kept.ended_real_ns == gone.answer.real_ns
    (hidden,) = (one for one in gone.answer.not_visible if "it ended" in one.why)
    assert "last 202 packets for Suricata-Main 7 on eth1, 40 of them dropped" in hidden.what
    assert not [line for line in lines(watch.look(look(4))) if "(ended)" in line], "said once"  # type: ignore[arg-type]


def test_intervals_of_a_clock_that_is_late_once() -> None:
    now = [0.0]
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    def one() -> Any:
        now[0] += 2.5 if len(pauses) == 2 else 0.0
        return look(now[0])

    found = list(intervals(one, interval_s=1.0, for_s=6.0, sleep=sleep, clock=lambda: now[0]))
    assert [round(interval.answer.interval_s, 3) for interval in found] == [1.0, 3.5, 1.0]
    assert found[0].answer.captures == []


@pytest.mark.parametrize(
    ("interval_s", "intervals_before", "ends_s"), [(10.0, 0, 4.5), (60.0, 0, 33.3), (5.0, 1, 7.7)]
)
def test_what_a_program_lost_that_ends_within_a_long_interval(
    interval_s: float, intervals_before: int, ends_s: float
) -> None:
    """Seen: nothing of a program that ended before the first interval did, and of later ones
    nothing since the interval began."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def one() -> Any:
        lost = round(100 * now[0])
        if now[0] >= ends_s:
            return look(now[0])
        sockets, ports = [sock(41, 2 * lost, lost)], [port((3 * lost, 3 * lost))]
        return look(now[0], sockets=sockets, ports=ports, programs={"7": program("snort")})

    for_s = interval_s * (intervals_before + 1)
    *_, found = intervals(
        one, interval_s=interval_s, for_s=for_s, sleep=sleep, clock=lambda: now[0]
    )
    (row,), (ended,) = found.answer.places, found.ended
    assert ends_s - 1.1 <= row.total / 100 < ends_s
    assert (ended.dropped, ended.ended_real_ns) == (row.total, found.answer.real_ns)
    assert f"at least {row.total:,} packets lost from" in "\n".join(ending(found, 1))
