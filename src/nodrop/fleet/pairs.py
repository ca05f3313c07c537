"""A crew of pairs: each trial is a task of dask for the worker that serves its pair.

A worker that goes loses its trial, which is done again. A pair whose worker stays away, or whose
lab fails again and again, is drained: the others take over its cells, and the manifest says why.
"""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from nodrop.errors import BadInput, LabProblem, NodropError, NotReady
from nodrop.fleet import worker
from nodrop.fleet.members import Member, Members, words_of
from nodrop.fleet.worker import Sent
from nodrop.hosts.seam import Json
from nodrop.ledger.reasons import OF_THE_LAB
from nodrop.measure.controllers.seam import Controller, Factors, May, TrialInput
from nodrop.measure.manager import Ended
from nodrop.measure.plan import Plan, Progress
from nodrop.results.trial import TrialRecord
from nodrop.results.writer import RunWriter


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


LOOK_S = 1.0
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

    def ended(self) -> Sequence[Ended]:
        try:
            name, task = self._ended.get(timeout=LOOK_S)
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

    def _received(self, name: str, asked: TrialInput, sent: Sent) -> Ended:
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
        return Ended(asked=asked, record=record, details=sent.details)

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
        """It is void, and its pair was found to be at fault."""
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


def _same_lab(name: str, one: Member, earlier: Mapping[str, Json]) -> Json:
    """The manifest entry of the pair from before, with its lab file. BadInput if the lab file has
    changed."""
    found = earlier.get(name, {})
    if found and found.get("lab_file") != one.job.lab.text:
        raise BadInput(
            f"{one.job.lab.path}: changed since this run was started",
            hint="resume with the same lab file, or give the pair another name",
        )
    return {**found, "lab_file": one.job.lab.text}


def _key(asked: TrialInput) -> tuple[str, int]:
    return cell_key(asked.cell), asked.repetition


def _is_of_dask(error: Exception) -> bool:
    if isinstance(error, NodropError):
        return False
    return type(error).__module__.partition(".")[0] in OF_DASK
