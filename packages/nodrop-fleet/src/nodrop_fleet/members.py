"""The pairs of a fleet: which worker serves each, how they fail, what the manifest says of it."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random
from typing import Any

from nodrop.errors import BadInput, LabProblem, NodropError, NotReady
from nodrop.ledger.outcome import OF_THE_LAB
from nodrop.measure.controllers.blocks import (
    Controller,
    Factors,
    May,
    Outlook,
    TrialInput,
    any_trial,
)
from nodrop.measure.manager import MeasuredTrial, this_nodrop
from nodrop.measure.plan import Plan, Progress
from nodrop.results.summary import OF_A_HOST, Remaining
from nodrop.results.trial import TrialRecord
from nodrop.results.writer import RunWriter
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.waiting import looks
from nodrop_fleet import worker
from nodrop_fleet.file import FleetFile
from nodrop_fleet.worker import PAIR, Job, Left, ReadyPair, Sent, Workers

FIRST_S = 60.0
"""Time that the beginning waits for workers of all pairs; then it goes on with those that are
there, if there is one. For the first it waits as long as the fleet file says."""
SAY_S = 10.0
"""After so long it says what it waits for."""
AGAIN_S = 20.0
"""Time after which workers that ended are started again; dask gives up one after 15 s."""
LOOK_S = 0.1
MOST_FAILURES = 3
"""Number of failures in a row after which a pair is drained."""
LEAVE_S = 60.0
WORKER_LEFT = (
    "its worker has ended: what it left there goes when one starts there, or by `nodrop undo`"
)
CLOCK_TRIPS = 8


@dataclass(slots=True)
class Member:
    job: Job
    worker: str = ""
    """The address of its worker; empty if there is none."""
    asked: TrialInput | None = None
    """The trial under way."""
    task: Any = None
    failures: int = 0
    """Number of failures in a row."""
    drained: str = ""
    """Why."""
    facts: Json = field(default_factory=dict)
    """Facts for the manifest."""


class Members:
    def __init__(
        self, client: Any, file: FleetFile, jobs: Mapping[str, Job], workers: Workers | None = None
    ) -> None:
        self._client, self._file = client, file
        self._workers = workers or Workers()
        self._again = time.monotonic() + AGAIN_S
        self.each = {name: Member(job) for name, job in jobs.items()}
        self.inputs: Sequence[Json] = ()
        """Inputs of each cell, as all pairs have them."""
        self.manifest: Json = {}
        """Manifest of the first pair that began."""
        self._have_left = False
        self._known: Json = {}
        self.changed: Callable[[str, str], None] = lambda _name, _words: None
        """Hears what has become of a pair."""

    def __getitem__(self, name: str) -> Member:
        return self.each[name]

    @property
    def standing(self) -> Sequence[str]:
        return [name for name, one in self.each.items() if one.worker and not one.drained]

    @property
    def under_way(self) -> Mapping[str, TrialInput]:
        return {name: one.asked for name, one in self.each.items() if one.asked}

    def begin(self, say: Callable[[str], None] = lambda _words: None) -> None:
        """All that have a worker, at once. NotReady if not one of them can measure."""
        while not self.manifest:
            if all(one.drained for one in self.each.values()):
                raise NotReady(f"not one pair of the fleet can measure this: {self.why_not()}")
            self._wait_for_workers(say)
            tasks = {
                name: (one.worker, self.submit(name, worker.begin, one.job))
                for name, one in self.each.items()
                if name in self.standing
            }
            for name, (address, task) in tasks.items():
                try:
                    self.has_begun(name, self._begun(name, task, address))
                except _WorkerEnded as ended:  # another one may serve the pair
                    say(f"{name}: {ended}")
                    self.failed(name, str(ended))
                except Exception as error:  # the others may do without whatever is wrong there
                    self.drain(name, words_of(error))

    def _begun(self, name: str, task: Any, address: str) -> ReadyPair:
        """The pair once it has begun. _WorkerEnded if its worker ended: dask would wait for another
        one at its address."""
        while True:
            with suppress(TimeoutError):
                task.result(timeout=LOOK_S)
            if task.done():
                begun: ReadyPair = task.result()
                return begun
            self.look()
            if self.each[name].worker != address:
                task.cancel()
                raise _WorkerEnded("its worker ended while the pair began")

    def _wait_for_workers(self, say: Callable[[str], None]) -> None:
        said = False
        for waited_s in looks(self.patience_s, every_s=LOOK_S):
            self.look()
            if all(one.worker or one.drained for one in self.each.values()):
                break
            if self.standing and waited_s > FIRST_S:
                break
            if waited_s > SAY_S and not said:
                said, why = True, self._workers.why_none()
                say(f"waiting for workers of dask{why and f': {why}'}")
        if not self.standing:
            why = self._workers.why_none()
            raise NotReady(
                f"no worker of dask has the resource {PAIR} after {self.patience_s:g} s"
                f"{why and f': {why}'}",
                hint=self._workers.hint,
            )

    @property
    def patience_s(self) -> float:
        """Time that a run waits if not one pair has a worker."""
        return self._file.wait_s

    def has_begun(self, name: str, begun: ReadyPair) -> None:
        ours, theirs = this_nodrop(), begun.manifest["nodrop"]
        if theirs["version"] != ours["version"]:
            self.drain(name, f"its nodrop is {theirs['version']}, and here is {ours['version']}")
            return
        if not self.manifest:
            self.inputs = begun.inputs
            # The command is ours, and trials have the order in which pairs begin them.
            self.manifest = {**begun.manifest, "nodrop": ours}
            self.manifest.pop("order", None)
            for one in self.each.values():
                one.job = replace(one.job, inputs=begun.inputs)
        elif list(begun.inputs) != list(self.inputs):
            self.drain(name, worker.OTHER_FILES)
        one = self.each[name]
        one.facts |= {key: begun.manifest.get(key) for key in OF_A_HOST}
        one.facts |= {"worker": one.worker, "clock": self._clock(one.worker)}
        self.changed(name, "")

    def _clock(self, address: str) -> Json | None:
        """Offset of the worker's clock from ours, by the shortest of several round trips. None if
        the worker has just ended, which is seen when it is given something to do."""
        trips: list[tuple[int, int]] = []
        for _ in range(CLOCK_TRIPS):
            sent = time.time_ns()
            try:
                there = self._client.run(time.time_ns, workers=[address])[address]
            except Exception:
                return None
            came = time.time_ns()
            trips.append((came - sent, there - (sent + came) // 2))
        took_ns, offset_ns = min(trips)
        return {"offset_ns": offset_ns, "bound_ns": took_ns // 2}

    def submit(self, name: str, what: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        return self._client.submit(
            what,
            *arguments,
            **more,
            workers=[self.each[name].worker],
            allow_other_workers=False,
            resources={PAIR: 1},
            pure=False,
            retries=0,
        )

    def look(self) -> None:
        """Which workers came and went. One that is called as a pair serves it; another one serves
        the next pair that has none."""
        self.must_be_connected()
        names = {
            address: str(one.get("name"))
            for address, one in self._there().items()
            if one.get("resources", {}).get(PAIR)
        }
        for name, one in self.each.items():
            if one.worker and one.worker not in names:
                self._lose(name)
        serve = {one.worker for one in self.each.values()}
        free = [address for address in names if address not in serve]
        for name, one in self.each.items():
            own = [address for address in free if names[address] == name]
            anyone = [address for address in free if names[address] not in self.each]
            if not one.worker and not one.drained and (own or anyone):
                one.worker = (own or anyone)[0]
                free.remove(one.worker)
        if any(not one.worker and not one.drained for one in self.each.values()):
            self._start_again()

    def _start_again(self) -> None:
        if time.monotonic() > self._again:
            self._again = time.monotonic() + AGAIN_S
            words = self._workers.again()
            if words:
                self.changed(self._file.name, words)

    def _lose(self, name: str) -> None:
        one = self.each[name]
        asked, task, one.worker = one.asked, one.task, ""
        one.asked = one.task = None
        if asked is not None:
            task.cancel()
            self.failed(name, f"its worker ended in {asked.run_name}")

    def leave(self) -> Sequence[Left]:
        """Ends what is under way; every pair undoes what it changed. Once."""
        if self._have_left or self._client.status != "running":
            return ()  # without a scheduler nothing can be said to them: each leaves by itself
        self._have_left = True
        there = {name: one for name, one in self.each.items() if one.worker}
        busy = [one for one in there.values() if one.asked]
        if busy:
            addresses = [one.worker for one in busy]
            self._client.run(worker.stop, busy[0].job.run, workers=addresses, on_error="ignore")
        tasks = [
            (one.worker, self.submit(name, worker.leave, one.job)) for name, one in there.items()
        ]
        until = time.monotonic() + LEAVE_S
        return [self._left(task, until) for task in tasks]

    def _left(self, task: tuple[str, Any], until: float) -> Left:
        address, future = task
        try:
            while time.monotonic() < until:
                with suppress(TimeoutError):
                    future.result(timeout=LOOK_S)
                if future.done():
                    left: Left = future.result()
                    return left
                if address not in self._there():
                    return Left(left=[WORKER_LEFT])
        except Exception as error:
            return Left(left=[words_of(error)])
        return Left(left=[f"no answer within {LEAVE_S:g} s: it leaves by itself, later"])

    def _there(self) -> Mapping[str, Any]:
        """Address → what the scheduler knows of each worker. The scheduler's own answer: the client
        keeps one that it writes over by itself now and then, with no workers in it."""
        with suppress(OSError):  # it is gone, which the client finds, too
            self._known = self._client.sync(self._client.scheduler.identity, n_workers=-1)
        found: Mapping[str, Any] = self._known.get("workers", {})
        return found

    def must_be_connected(self) -> None:
        if self._client.status != "running":
            raise LabProblem("the scheduler of the fleet is gone")

    def failed(self, name: str, why: str) -> None:
        """A trial, for a reason that is the pair's."""
        one = self.each[name]
        one.failures += 1
        one.facts["failures"] = [*one.facts.get("failures", ()), why]
        self.changed(name, why)
        if one.failures >= MOST_FAILURES:
            self.drain(name, f"{one.failures} trials in a row failed there, the last: {why}")

    def drain(self, name: str, why: str) -> None:
        self.each[name].drained = self.each[name].facts["drained"] = why
        self.changed(name, f"drained: {why}")

    def why_not(self) -> str:
        return "; ".join(
            f"{name}: {one.drained or 'it has no worker'}"
            for name, one in self.each.items()
            if one.drained or not one.worker
        )

    def facts(self) -> Json:
        return {
            "name": self._file.name,
            "cluster": self._file.cluster,
            "host_invariant": self._file.host_invariant,
            "pairs": {name: one.facts for name, one in self.each.items()},
        }


class _WorkerEnded(LabProblem):
    pass


def words_of(error: BaseException) -> str:
    return str(error) if isinstance(error, NodropError) else f"{type(error).__name__}: {error}"


class InParallel:
    """A `Controller` whose trials take this part of the time."""

    def __init__(self, of: Controller, part: float) -> None:
        self._of, self._part = of, part
        self.heeds_void = of.heeds_void

    def next(self, done: Sequence[TrialRecord], may: May = any_trial) -> TrialInput | None:
        return self._of.next(done, may)

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook:
        found = self._of.outlook(done)
        most = found.at_most
        return replace(
            found,
            at_least=self._shared(found.at_least),
            at_most=None if most is None else self._shared(most),
        )

    def beforehand(self) -> Sequence[TrialInput]:
        return self._of.beforehand()

    def _shared(self, one: Remaining) -> Remaining:
        return replace(one, seconds=one.seconds * self._part)


def in_parallel(plan: Plan, pairs: int, *, host_invariant: bool) -> Plan:
    """A cell that stays on its pair is not divided: the pair with most cells takes longest."""
    cells = len(plan.cells)
    part = 1 / pairs if host_invariant else ceil(cells / pairs) / cells
    return replace(
        plan,
        controller=InParallel(plan.controller, part),
        load_s=None if plan.load_s is None else plan.load_s * part,
        around_s=plan.around_s * part,
    )


# A crew of pairs: each trial is a task of dask for the worker that serves its pair.
#
# A worker that goes loses its trial, which is done again. A pair whose worker stays away, or whose
# lab fails again and again, is drained: the others take over its cells, and the manifest says why.


class Deal:
    def __init__(self, cells: Sequence[Factors], lasts_s: Sequence[float], *, seed: int) -> None:
        """`lasts_s`: of each cell, a trial of it as intended."""
        dealt = list(zip(map(cell_key, cells), lasts_s, strict=True))
        Random(f"{seed} deal").shuffle(dealt)
        self._dealt = sorted(dealt, key=lambda cell: -cell[1])

    def owners(
        self, pairs: Sequence[str], begun: Iterable[tuple[Factors, str]]
    ) -> Mapping[str, str]:
        """Key of the cell → pair. `pairs` stand; `begun`: cells, each with a pair that measured a
        trial of it, in their order."""
        first: dict[str, str] = {}
        for cell, pair in begun:
            if pair in pairs:
                first.setdefault(cell_key(cell), pair)
        has_s = dict.fromkeys(pairs, 0.0)
        found: dict[str, str] = {}
        for key, lasts_s in self._dealt:
            owner = first.get(key) or min(pairs, key=lambda pair: has_s[pair])
            has_s[owner] += lasts_s
            found[key] = owner
        return found


def cell_key(cell: Factors) -> str:
    return json.dumps(cell, sort_keys=True, default=str)


ENDED_LOOK_S = 1.0
"""How often workers are looked for, while no trial ends."""
OF_DASK = frozenset({"asyncio", "concurrent", "dask", "distributed"})


class Pairs:
    """A `Crew`."""

    def __init__(
        self,
        members: Members,
        plan: Plan,
        writer: RunWriter,
        progress: Progress,
        *,
        host_invariant: bool,
    ) -> None:
        self._members, self._plan = members, plan
        self._writer, self._progress = writer, progress
        self._host_invariant = host_invariant
        seconds = [length.offered_s or 0.0 for length in plan.lengths]
        self._deal = Deal([cell.factors for cell in plan.cells], seconds, seed=plan.seed)
        self._ended: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._alone_since: float | None = None
        self._numbers = {(cell_key(r.cell), r.repetition): r.index for r in writer.records()}
        self._earlier = writer.manifest.get("fleet", {}).get("pairs", {})
        """Manifest entries of the pairs from an earlier sitting."""
        for name, one in members.each.items():
            one.facts = {**_same_lab(name, one, self._earlier), "drained": None, **one.facts}
            if one.drained:
                progress.note(f"{name} is drained: {one.drained}")
        members.changed = self._changed
        self._changed("", "")

    def begin(self, controller: Controller, done: Sequence[TrialRecord]) -> bool:
        members = self._members
        self._look()
        counted = [record for record in done if not self._is_to_be_done_again(record)]
        for name in members.standing:
            if members[name].asked is None:
                asked = controller.next(counted, self._may(name, counted))
                if asked is not None:
                    self._ask(name, self._numbered(asked), done)
        if members.under_way:
            return True
        if controller.next(counted) is None:
            return False
        self._must_come_back()
        return True

    def ended(self) -> Sequence[MeasuredTrial]:
        try:
            name, task = self._ended.get(timeout=ENDED_LOOK_S)
        except queue.Empty:
            return ()
        one = self._members[name]
        if task is not one.task or one.asked is None:
            return ()  # its worker is gone, and the trial is given to another
        asked, one.asked, one.task = one.asked, None, None
        try:
            sent = task.result()
        except Exception as error:
            self._look()
            if _is_of_dask(error):
                self._members.failed(name, f"its worker ended in {asked.run_name}")
            elif isinstance(error, LabProblem) and not isinstance(error, NotReady):
                self._members.failed(name, str(error))
            else:
                self._members.drain(name, words_of(error))
            return ()
        return [] if sent is None else [self._received(name, asked, sent)]

    def _received(self, name: str, asked: TrialInput, sent: Sent) -> MeasuredTrial:
        for words in sent.notes:
            self._progress.note(f"{name}: {words}")
        if sent.begun:
            self._members.has_begun(name, sent.begun)
        self._writer.trial(asked.run_name).unpack(sent.files)
        record = sent.record
        if record.outcome == "void" and OF_THE_LAB & {*record.invalid_reasons}:
            self._members.failed(name, record.error or record.verdict)
        else:
            self._members[name].failures = 0
        return MeasuredTrial(asked=asked, record=record, details=sent.details)

    def leave(self) -> None:
        """Ends what is under way; every pair undoes what it changed, and the manifest says so."""
        found = self._members.leave()
        before = self._writer.manifest.get("undo") or {"changed": []}
        changed = dict.fromkeys([*before["changed"], *(w for one in found for w in one.changed)])
        left = [words for one in found for words in one.left]
        self._writer.update_manifest({"undo": {"changed": [*changed], "left": left}})

    # --- which pair, which trial -----------------------------------------------------------------

    def _may(self, name: str, done: Sequence[TrialRecord]) -> May:
        under_way = self._members.under_way
        taken = {_key(asked) for asked in under_way.values()}
        if self._host_invariant:
            return lambda asked: _key(asked) not in taken
        begun: list[tuple[Any, str]] = [(record.cell, record.pair or "") for record in done]
        begun += [(asked.cell, pair) for pair, asked in under_way.items()]
        owners = self._deal.owners(self._members.standing, begun)
        return lambda asked: _key(asked) not in taken and owners[cell_key(asked.cell)] == name

    def _numbered(self, asked: TrialInput) -> TrialInput:
        """A trial that is repeated keeps its number; another gets the next one."""
        following = max(self._numbers.values(), default=0) + 1
        return replace(asked, index=self._numbers.setdefault(_key(asked), following))

    def _ask(self, name: str, asked: TrialInput, done: Sequence[TrialRecord]) -> None:
        one = self._members[name]
        self._progress.trial_started(asked)
        one.asked = asked
        asks_tsc = self._plan.asks_tsc(asked, [record for record in done if record.pair == name])
        one.task = self._members.submit(name, worker.measure, one.job, asked, asks_tsc=asks_tsc)
        one.task.add_done_callback(lambda task: self._ended.put((name, task)))

    def _is_to_be_done_again(self, record: TrialRecord) -> bool:
        """The trial is void, and its pair was found to be at fault."""
        one = self._members.each.get(record.pair or "")
        return record.outcome == "void" and one is not None and bool(one.drained)

    # --- pairs that come and go ------------------------------------------------------------------

    def _look(self) -> None:
        try:
            self._members.look()
        except LabProblem as gone:
            gone.hint = "what was measured is kept: start the scheduler and the workers again"
            raise

    def _must_come_back(self) -> None:
        """There is a trial to be measured, and no pair for it."""
        if self._members.standing:
            self._alone_since = None
            return
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        all_drained = all(one.drained for one in self._members.each.values())
        if all_drained or now - self._alone_since > self._members.patience_s:
            raise LabProblem(
                f"no pair of the fleet is left: {self._members.why_not()}",
                hint="mend them",
            )

    def _changed(self, name: str, words: str) -> None:
        if words:
            self._progress.note(f"{name}: {words}")
        first = {} if "self_test" in self._writer.manifest else self._members.manifest
        fleet = self._members.facts()
        fleet["pairs"] = {**self._earlier, **fleet["pairs"]}
        self._writer.update_manifest({**first, "fleet": fleet})


def _same_lab(name: str, member: Member, earlier: Mapping[str, Json]) -> Json:
    """The manifest entry of the pair from before, with its lab file. BadInput if the lab file has
    changed."""
    found = earlier.get(name, {})
    if found and found.get("lab_file") != member.job.lab.text:
        raise BadInput(
            f"{member.job.lab.path}: changed since this run was started",
            hint="resume with the same lab file, or give the pair another name",
        )
    return {**found, "lab_file": member.job.lab.text}


def _key(asked: TrialInput) -> tuple[str, int]:
    return cell_key(asked.cell), asked.repetition


def _is_of_dask(error: Exception) -> bool:
    if isinstance(error, NodropError):
        return False
    return type(error).__module__.partition(".")[0] in OF_DASK
