"""Plans, applies and puts back knobs: what stood there is journaled before the first write.

The whole state of a port is saved, for knobs change each other: a new number of channels resets the
hash table, makes queues without RPS and moves interrupt lines. Putting back writes every piece that
differs, in the order of writing, until nothing differs.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodrop import plugins
from nodrop.config.options import shown
from nodrop.errors import BadInput, BadKey, LabProblem, NodropError
from nodrop.testbed.hosts.api import UndoAction, UndoJournal
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.labs.port_settings import (
    FEATURE,
    HOST,
    Device,
    Piece,
    Raw,
    may_be_set,
    may_be_written,
    names,
    rank,
    settle,
)
from nodrop.tune.knobs import KNOBS, AnyKnob, Knob, find
from nodrop.tune.namespaces import enter, go, hardware_address, own_space, spaces
from nodrop.untrusted.json_text import NotJson, decode_object, member

CALM = ("veth", "virtio_net", "tun", "macvlan", "macvtap", "bridge", "dummy", "ifb", "loopback")
"""Drivers that have no link to take down (virtio: seen on Linux 6.1 and 6.12)."""
CALM_BUT = {"veth": "channels"}
"""Driver in `CALM` → a piece that takes the link down all the same."""
WORDS_WITHIN_S = 10.0
NO_ADDRESS = ("", "00:00:00:00:00:00")
States = dict[Piece, Raw]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobStep:
    """A knob of one port, or of the host."""

    knob: Knob
    port: str
    value: str
    pieces: Sequence[Piece]
    now: str
    then: str
    flaps: bool

    @property
    def where(self) -> str:
        return self.port or "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A step that was taken."""

    step: KnobStep
    found: str
    """The value that was read back."""

    @property
    def verdict(self) -> str:
        if self.found == self.step.then:
            return "as it was" if self.found == self.step.now else "set"
        return "accepted and ignored" if self.found == self.step.now else "set otherwise"

    @property
    def missed(self) -> bool:
        return self.found != self.step.then


@dataclass(slots=True, kw_only=True)
class Applied:
    done: list[Done] = field(default_factory=list)
    along: list[str] = field(default_factory=list)
    """Values that changed with those that were asked for."""
    flaps: dict[str, int] = field(default_factory=dict)
    """Port → how often its link went down or up meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State that a tuning leaves behind, as a journal keeps it."""

    space: int
    """Inode of the network namespace."""
    ports: Mapping[str, tuple[int, str]]
    """Name → index and address."""
    before: States
    left: States | None = None
    """None: the tuning did not get to its end."""

    def text(self) -> str:
        return json.dumps(
            {
                "space": self.space,
                "ports": {name: list(port) for name, port in self.ports.items()},
                "before": _listed(self.before),
                **({} if self.left is None else {"left": _listed(self.left)}),
            }
        )

    @classmethod
    def of(cls, text: str) -> State:
        said = decode_object(text)
        ports = member(said, "ports", dict)
        return cls(
            space=member(said, "space", int),
            ports={str(name): _port(str(name), port) for name, port in ports.items()},
            before=_parsed(member(said, "before", list)),
            left=_parsed(said["left"]) if "left" in said else None,
        )


def _listed(states: States) -> list[list[str]]:
    return [[one.port, one.name, raw] for one, raw in states.items()]


def _port(name: str, said: Sequence[object]) -> tuple[int, str]:
    """Index and address, if a kernel can have given them."""
    index, address = said
    if not isinstance(index, int) or not 0 < index < 1 << 31 or not isinstance(address, str):
        raise NotJson(f"ports: {name} has {shown(said)}, which no port has")
    return index, address


def _parsed(rows: Sequence[Sequence[str]]) -> States:
    found = {Piece(str(port), str(name)): str(raw) for port, name, raw in rows}
    for one, raw in found.items():
        if not may_be_set(one):
            raise NotJson(f"{one} is nothing that nodrop sets")
        if not may_be_written(one, raw):
            raise NotJson(f"{one} has the value {shown(raw)}, which it cannot have had")
    return found


# --- plan -----------------------------------------------------------------------------------------


def parse(words: Sequence[str], knobs: Sequence[AnyKnob]) -> list[tuple[AnyKnob, str]]:
    """`gro=off` → knob and value; BadInput with the nearest name."""
    found: dict[str, tuple[AnyKnob, str]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        knob = find(name.strip(), knobs, value=value.strip() or "VALUE")
        if not equals or not value.strip():
            raise BadInput(f"{word}: give {knob.id}=VALUE; {knob.values}")
        if knob.id in found:
            raise BadInput(f"{word}: {knob.id} is given twice")
        found[knob.id] = (knob, value.strip())
    return list(found.values())


def plan(
    device: Device, asked: Sequence[tuple[Knob, str]], ports: Sequence[str]
) -> tuple[KnobStep, ...]:
    """Steps in the order of writing. BadInput if a knob is absent, or a value cannot be right."""
    found = [
        _step(device, knob, value, port)
        for knob, value in asked
        for port in ([HOST] if knob.of_host else ports)
    ]
    places = {knob.id: number for number, knob in enumerate(KNOBS)}
    return tuple(
        sorted(found, key=lambda s: (rank(s.pieces[0]), places.get(s.knob.id, len(places))))
    )


def _step(device: Device, knob: Knob, value: str, port: str) -> KnobStep:
    pieces = knob.pieces(device, port)
    driver = device.driver(port) if port else ""
    if not pieces:
        where = f"{port} ({driver})" if port else "this host"
        raise BadInput(f"{knob.id}={value}: {where} has none that can be set ({knob.title})")
    if strange := [piece for piece in pieces if not may_be_set(piece)]:
        raise BadInput(f"{knob.id}={value}: nodrop could not put {strange[0]} back after a kill")
    raws = [device.read(piece) or "" for piece in pieces]
    try:
        then = knob.shown(knob.edit(raw, value) for raw in raws)
    except ValueError as error:
        raise BadInput(f"{knob.id}={value}: {error}") from None
    return KnobStep(
        knob=knob,
        port=port,
        value=value,
        pieces=pieces,
        now=knob.shown(raws),
        then=then,
        flaps=knob.flaps and (driver not in CALM or CALM_BUT.get(driver) == knob.at),
    )


def values(device: Device, port: str, knobs: Sequence[Knob] = KNOBS) -> Iterator[tuple[Knob, str]]:
    """Every knob of a port that is there (of the host: port ""), and its value now."""
    for knob in knobs:
        if knob.of_host == (port == HOST) and (pieces := knob.pieces(device, port)):
            yield knob, knob.shown(device.read(piece) or "" for piece in pieces)


# --- apply ----------------------------------------------------------------------------------------


def snapshot(device: Device, steps: Sequence[KnobStep]) -> States:
    """All of each port, and the host's pieces that are to change."""
    ports = dict.fromkeys(step.port for step in steps if step.port)
    pieces = [piece for port in ports for piece in device.pieces(port)]
    pieces += [piece for step in steps if not step.port for piece in step.pieces]
    pairs = ((piece, device.read(piece)) for piece in pieces)
    return {one: raw for one, raw in pairs if raw is not None}


def apply(device: Device, steps: Sequence[KnobStep]) -> Applied:
    """Writes and reads back. BadInput if the kernel or a driver does not take a value: the caller
    has journaled what stood there, and puts it back."""
    applied = Applied()
    ports = dict.fromkeys(step.port for step in steps if step.port)
    flapped = {port: device.flaps(port) for port in ports}
    before = snapshot(device, steps)
    for step in steps:
        _write(device, step)
    for step in steps:
        raws = [raw for piece in step.pieces if (raw := device.read(piece)) is not None]
        applied.done.append(Done(step=step, found=step.knob.shown(raws)))
    applied.along = list(_along(before, snapshot(device, steps), steps))
    for port, first in flapped.items():
        last = device.flaps(port)
        if first is not None and last is not None and last > first:
            applied.flaps[port] = last - first
    return applied


def _write(device: Device, step: KnobStep) -> None:
    for piece in step.pieces:
        raw = device.read(piece)
        if raw is None:
            continue  # a queue that went with the channels
        wanted = step.knob.edit(raw, step.value)
        if wanted == raw:
            continue
        try:
            device.write(piece, wanted)
        except PermissionError:
            raise BadInput(
                f"{step.where}: {step.knob.id}: this user may not set it",
                hint="run as root, or with CAP_NET_ADMIN; nothing was changed",
            ) from None
        except OSError as error:
            words = _words(step) or error.strerror or str(error)
            raise BadInput(
                f"{step.where}: {step.knob.id}={step.value} is refused: {words}",
                hint="nothing was changed",
            ) from None


def _words(step: KnobStep) -> str:
    """The driver's words on a value that it has just refused, from the program that asks for it by
    hand: an ioctl and a file of /sys answer by number alone."""
    by_hand = step.knob.by_hand(step.port, step.value).split()
    if not step.port or not by_hand or step.port not in names():
        return ""
    done = run_command(by_hand, where="tune", timeout_s=WORDS_WITHIN_S, check=False)
    lines = (done.stderr or done.stdout).strip().splitlines()
    return next((line.partition(": ")[2] or line for line in lines if line), "")


def _along(before: States, after: States, steps: Sequence[KnobStep]) -> Iterator[str]:
    asked = {(step.port, step.knob.id) for step in steps}
    for port, knob, was, now in differences(before, after):
        if (port, knob.id) not in asked:
            yield f"{port or 'host'} {knob.id}: {was} → {now}"


def differences(before: States, after: States) -> Iterator[tuple[str, Knob, str, str]]:
    """Knobs that show otherwise: port, knob, value before and after."""
    for port in dict.fromkeys(one.port for one in (*before, *after)):
        for knob in KNOBS:
            was, now = (_shown(knob, port, states) for states in (before, after))
            if was != now:
                yield port, knob, was, now


def _shown(knob: Knob, port: str, states: States) -> str:
    raws = (raw for one, raw in states.items() if one.port == port and knob.has(one))
    return knob.shown(raws) or "absent"


# --- put back -------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Restored:
    done: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Values that somebody else has changed since, which stay as they are."""
    failed: list[str] = field(default_factory=list)


def restore(device: Device, state: State, *, overwrite: bool = False) -> Restored:
    """Every piece as it stood before, but for what somebody else has changed since."""
    restored = Restored()
    present = {one: raw for one in state.before if (raw := device.read(one)) is not None}
    goal: States = {}
    for one, was in state.before.items():
        now = present.get(one)
        ours = state.left is None or now == was or now == state.left.get(one)
        goal[one] = was if ours or overwrite or now is None else now
    kept = {one: raw for one, raw in goal.items() if raw != state.before[one]}
    originals = {one: state.before[one] for one in kept}
    for port, knob, was, now in differences(originals, kept):
        words = f"{port or 'host'} {knob.id} is {now} since, by somebody else"
        restored.others.append(f"{words}: it stays ({was} before the tuning)")
    if kept and not restored.others:
        restored.others += [f"{one} is otherwise since, by somebody else: it stays" for one in kept]
    refusals = settle(device, goal)
    after = {one: raw for one in goal if (raw := device.read(one)) is not None}
    for port, knob, was, now in differences(present, after):
        restored.done.append(f"{port or 'host'} {knob.id}: {was} → {now}")
    for one, raw in goal.items():
        found = after.get(one)
        if found is not None and one.name.startswith(FEATURE) and found[0] == raw[0] != found[1]:
            words = "is asked for again, and off as long as another feature is off"
            restored.others.append(f"{one} {words}")
        elif found != raw:
            why = refusals.get(one, "it was accepted and ignored" if one in after else "it is gone")
            restored.failed.append(f"{one}: {why}")
    return restored


# --- identity -------------------------------------------------------------------------------------


def state_of(steps: Sequence[KnobStep], before: States, earlier: State | None = None) -> State:
    """State to be journaled ahead of these steps. With an earlier tuning of the same namespace,
    what that has left counts as set by us, and its originals stay the originals."""
    originals = dict(before)
    named = dict.fromkeys(step.port for step in steps if step.port)
    ports = {name: (socket.if_nametoindex(name), hardware_address(name)) for name in named}
    if earlier is not None:
        for one, was in earlier.before.items():
            now = before.get(one)
            left = (earlier.left or {}).get(one)
            if now is None or now in (was, left):
                originals[one] = was
        ports = {**earlier.ports, **ports}
    return State(space=own_space(), ports=ports, before=originals)


def located(state: State) -> tuple[Sequence[State], Mapping[str, str]]:
    """Parts of a tuning by the network namespace in which their ports are now, with the names that
    they have there; and ports (and the host) that are in none → words. This thread stays in the
    last namespace that it looked at."""
    parts: list[State] = []
    gone: dict[str, str] = {}
    if enter(state.space):
        known, gone = _known(state)
        parts.append(_under(state, {HOST: HOST, **known}, state.space))
    else:
        of_host = [HOST] if not state.ports or any(not one.port for one in state.before) else []
        words = "its network namespace is gone, and its settings with it"
        gone = dict.fromkeys([*state.ports, *of_host], words)
    for name, (space, now) in _moved(state, gone).items():
        parts.append(_under(state, {name: now}, space))
        del gone[name]
    return parts, gone


def _known(state: State) -> tuple[dict[str, str], dict[str, str]]:
    """Ports that are in this namespace → their names now, and the others → words."""
    known, gone = {}, {}
    for name, (index, address) in state.ports.items():
        try:
            now = socket.if_indextoname(index)
        except OSError:
            gone[name] = f"{name}: the port is gone, and its settings with it"
            continue
        if hardware_address(now) != address:
            gone[name] = f"{name}: the port with its number is another one now ({now})"
            continue
        known[name] = now
    return known, gone


def _moved(state: State, missing: Iterable[str]) -> Mapping[str, tuple[int, str]]:
    """Ports that are in another network namespace now → that, and their names there. A port keeps
    its address, and its index unless another one has that there."""
    alike: dict[str, list[tuple[bool, int, str]]] = {name: [] for name in missing if name}
    for space, file in spaces().items() if alike else ():
        if space == state.space:
            continue
        try:
            go(file)
            there = [(index, now, hardware_address(now)) for index, now in socket.if_nameindex()]
        except OSError:  # a process that has just ended, or another's user namespace
            continue
        for name, same in alike.items():
            known_index, address = state.ports[name]
            for index, now, its_address in there:
                if its_address == address and address not in NO_ADDRESS:
                    same.append((index == known_index, space, now))
    found = {}
    for name, same in alike.items():
        likeliest = [one for one in same if one[0]] or same
        if len(likeliest) == 1:
            found[name] = likeliest[0][1:]
    return found


def _under(state: State, names: Mapping[str, str], space: int) -> State:
    """Part of a tuning whose ports are in a namespace, under these names."""

    def there(states: States) -> States:
        return {Piece(names[p.port], p.name): r for p, r in states.items() if p.port in names}

    return State(
        space=space,
        ports={names[name]: port for name, port in state.ports.items() if name in names},
        before=there(state.before),
        left=None if state.left is None else there(state.left),
    )


# Knobs of an experiment's [tune] table: set for a trial, on ports that the lab has made.
#
# They are set before the SUT starts and once more when it is ready, for a SUT changes some itself
# (Suricata: offloads). The ports go with their network namespace; knobs of the host are journaled.

Asked = Sequence[tuple[Knob, str]]


def asked(table: Mapping[str, Any]) -> Asked:
    """BadInput that begins with the key."""
    if not table:
        return []  # nor is a third party's knob imported
    known = (*KNOBS, *plugins.knobs())
    found: list[tuple[Knob, str]] = []
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise BadKey(f"tune.{name}", "must be a text or a number")
        try:
            found += parse([f"{name}={value}"], known)
        except BadInput as error:
            raise BadInput(f"tune.{error.message}", hint=error.hint) from None
    return found


@contextmanager
def tuned(
    table: Mapping[str, Any], netns: Path | None, ports: Sequence[str], journal: UndoJournal
) -> Iterator[Callable[[], None]]:
    """Sets them; what is given sets them again. LabProblem if a value does not hold."""
    wanted = asked(table)
    of_host = [one for one in wanted if one[0].of_host]
    of_port = [one for one in wanted if not one[0].of_host]

    def again() -> None:
        if of_port:
            _within(netns, lambda: _set(of_port, ports))

    again()
    if not of_host:
        yield again
        return
    live = Device()
    steps = plan(live, of_host, [HOST])
    before = snapshot(live, steps)
    journal.push(
        what=f"{', '.join(step.knob.id for step in steps)} of the host",
        action=UndoAction.RESTORE_SETTINGS,
        arguments=[state_of(steps, before).text()],
    )
    try:
        _must_hold(apply(live, steps).done)
        yield again
    finally:
        settle(live, before)


def _set(wanted: Asked, ports: Sequence[str]) -> None:
    live = Device()
    _must_hold(apply(live, plan(live, wanted, ports)).done)


def _must_hold(done: Sequence[Done]) -> None:
    for one in done:
        if one.missed:
            step = one.step
            words = f"{step.where}: tune.{step.knob.id}={step.value}"
            raise LabProblem(f"{words} is {one.verdict}: it is {one.found}")


def _within(netns: Path | None, work: Callable[[], None]) -> None:
    """Works in a thread of its own, in that network namespace, and sees its ports in /sys."""
    errors: list[Exception] = []

    def entered() -> None:
        try:
            if netns is not None and not enter(netns.stat().st_ino):
                raise LabProblem(f"{netns}: the lab's network namespace is gone")
            work()
        except (OSError, NodropError) as error:
            errors.append(error)

    thread = threading.Thread(target=entered)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
