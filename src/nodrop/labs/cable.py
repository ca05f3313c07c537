"""Proves the cable between two far ports: marked frames that leave one arrive at the other, and
nowhere else, at the MTU and rate that both ports have.

The mark is their number and the sum of their lengths, which are random; the node's sink counts
both. A frame of somebody else's, one too few and one that was cut change one of the two.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nodrop.config.units import count_of
from nodrop.hosts.seam import Json
from nodrop.labs.cable_rate import burst, judged, unlike
from nodrop.labs.crossing import CableEnd, Crossed, cross
from nodrop.labs.netns import ETHERNET_HEADER_BYTES
from nodrop.labs.overheard import Overhearing, Place
from nodrop.labs.seam import Checked

FRAMES = 32
PPS = 2000
SHORTEST_BYTES = 60
"""What Ethernet pads to, without its checksum: shorter ones would arrive longer."""
SHORT_BYTES = 500
"""These pass wherever anything does (IPv4 wants an MTU of 576)."""
MEND = "put the cable or the switch right, and look with `nodrop lab check LAB`"

Ways = Sequence[tuple[str, CableEnd, CableEnd]]


def prove(sender: CableEnd, receiver: CableEnd, rng: random.Random) -> Checked:
    """Both ways, with frames up to the smaller MTU. LabProblem if a host cannot send or listen."""
    ways: Ways = (("there", sender, receiver), ("back", receiver, sender))
    seen: list[str] = []
    problems: list[str] = []
    facts: dict[str, Json] = {}
    faults: dict[str, str] = {}
    with Overhearing(sender, receiver) as overhearing:
        for name, tx, rx in ways:
            facts[name], faults[name] = _marked(tx, rx, rng, seen)
        overhearing.end()
        for name, tx, rx in ways:
            elsewhere = overhearing.of(tx)
            facts[name]["elsewhere"] = [one.facts() for one in elsewhere]
            if not facts[name]["arrived_packets"] and elsewhere:
                faults[name] = f"{_none(tx, rx)}; {leads_to(elsewhere)}"
            elif elsewhere:
                places = ("at least " if overhearing.lost() else "") + ", ".join(
                    one.words for one in elsewhere
                )
                problems.append(
                    f"of the marked frames from {tx.words}, {places} came, too: a switch floods "
                    "them, a mirror port copies them, or there is a second cable; give these two "
                    "ports a cable or a VLAN of their own"
                )
            problems += [faults[name]] if faults[name] else []
        if not any(facts[name]["elsewhere"] for name, *_ in ways):
            seen.append(f"none came to another port that is up ({overhearing.words()})")
    _rate(ways, facts, seen, problems)
    return Checked(
        what="cable", seen=seen, problems=[f"cable: {one}" for one in problems], facts=facts
    )


def prove_one_way(sender: CableEnd, receiver: CableEnd, rng: random.Random) -> Checked:
    """Of a run, before its first trial: a mirror port has no way back, and what a smaller MTU loses
    the trials show. At other ports it listens only if none came where they were sent."""
    ends = [replace(end, others=()) for end in (sender, receiver)]
    for tx, rx in (ends, (sender, receiver)):
        with Overhearing(tx, rx) as overhearing:
            crossed = cross(tx, rx, marked_lengths(SHORT_BYTES, rng), pps=PPS)
            overhearing.end()
        if overhearing.arrived(tx):
            return Checked(what="cable")
    if crossed.sent_packets < FRAMES:
        words = _sent_less(tx, crossed)
    elif elsewhere := overhearing.of(tx):
        words = f"{_none(tx, rx)}; {leads_to(elsewhere)}"
    else:
        words = f"{_none(tx, rx)}, nor to another port that is up ({overhearing.words()})"
    return Checked(what="cable", problems=[f"cable: {words}; {MEND}"])


def _marked(tx: CableEnd, rx: CableEnd, rng: random.Random, seen: list[str]) -> tuple[Json, str]:
    """And what is wrong, in words; "" if nothing is."""
    fault = ""
    mtu = min(tx.mtu, rx.mtu)
    longest = mtu + ETHERNET_HEADER_BYTES
    lengths = marked_lengths(longest, rng)
    crossed = cross(tx, rx, lengths, pps=PPS)
    whole = is_whole(lengths, crossed)
    if whole:
        seen.append(
            f"{crossed.sent_packets} marked frames of {SHORTEST_BYTES} to {longest} bytes went "
            f"from {tx.words} to {rx.words}"
        )
    else:
        short = marked_lengths(min(SHORT_BYTES, longest), rng)
        short_pass = is_whole(short, cross(tx, rx, short, pps=PPS))
        fault = _fault(tx, rx, crossed, mtu, short_pass=short_pass)
    facts = {
        "sent_packets": crossed.sent_packets,
        "arrived_packets": crossed.arrived_packets,
        "whole": whole,
    }
    return facts, fault


def is_whole(asked: Sequence[int], crossed: Crossed) -> bool:
    """These, all of them, and no others."""
    arrived = (crossed.sent_packets, crossed.arrived_packets, crossed.arrived_bytes)
    return arrived == (len(asked), len(asked), sum(asked))


def _fault(tx: CableEnd, rx: CableEnd, crossed: Crossed, mtu: int, *, short_pass: bool) -> str:
    way = f"from {tx.words} to {rx.words}"
    if crossed.sent_packets < FRAMES:
        return _sent_less(tx, crossed)
    if short_pass:
        return (
            f"{way} short frames pass and those of up to MTU {mtu} do not: something between "
            f"has a smaller MTU ({crossed.arrived_packets} of {FRAMES} arrived)"
        )
    if crossed.arrived_packets == 0:
        return f"{_none(tx, rx)}; is the cable between these two ports?"
    if crossed.arrived_packets < FRAMES:
        return f"{crossed.arrived_packets} of {FRAMES} marked frames came {way}"
    return (
        f"{count_of(crossed.arrived_packets, 'frame')} came {way}, and {FRAMES} were sent: "
        "others send on this cable, too"
    )


def marked_lengths(longest: int, rng: random.Random) -> list[int]:
    """Of frames without their checksum, in bytes; one is the longest."""
    return [longest, *(rng.randint(SHORTEST_BYTES, longest) for _ in range(FRAMES - 1))]


def _sent_less(tx: CableEnd, crossed: Crossed) -> str:
    return f"{tx.words} sent {crossed.sent_packets} of {FRAMES} marked frames"


def _none(tx: CableEnd, rx: CableEnd) -> str:
    return f"none of {FRAMES} marked frames came from {tx.words} to {rx.words}"


def leads_to(elsewhere: Sequence[Place]) -> str:
    return f"the cable leads to {', '.join(one.name for one in elsewhere)}"


def _rate(ways: Ways, facts: Mapping[str, Json], seen: list[str], problems: list[str]) -> None:
    """A burst disturbs others, so it is sent only between ports that were shown to be alone."""
    _, one, other = ways[0]
    if wrong := unlike(one, other):
        problems.append(wrong)
    if problems or not (one.alone and other.alone):
        return
    if one.speed_mbit is None or other.speed_mbit is None:
        seen.append("its rate is not known, for a port does not say it, and was not tried")
        return
    for name, tx, rx in ways:
        found = burst(tx, rx, min(tx.mtu, rx.mtu) + ETHERNET_HEADER_BYTES)
        facts[name]["burst"] = found.facts()
        words, wrong = judged(tx, rx, found)
        seen += [words] if words else []
        problems += [wrong] if wrong else []
