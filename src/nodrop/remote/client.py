"""The half of a run that is kept, on the user's machine: it asks what next, shows and writes.

The other half measures, on the receiver (remote/agent.py). Whatever ends this one ends that one,
which undoes; what was measured until then is here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nodrop import plugins
from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import LabSource
from nodrop.errors import BadInput, Interrupted, LabProblem, NodropError, NotReady, interrupts
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.manager import (
    RunOutcome,
    keep_raw_files,
    keeping_in,
    must_be_meant,
    question,
    storage_of,
    to_go_on_with,
)
from nodrop.measure.plan import Plan, Progress, make_plan
from nodrop.measure.preflight import resettable
from nodrop.remote.inputs import copied, copy_of, named_files
from nodrop.remote.messages import (
    CopiedImage,
    CurrentManifest,
    DoctorAnswer,
    EarlierTrials,
    Ended,
    ErrorKind,
    Far,
    FarError,
    FileHead,
    LiveReading,
    Next,
    Note,
    Phase,
    Report,
    Request,
    RunFolder,
    Task,
    TrialEnded,
    TrialStarted,
)
from nodrop.remote.outbox import begun_of, fingerprint
from nodrop.remote.upload import placed
from nodrop.results.layout import TrialFolder
from nodrop.results.rundir import find_run, open_run
from nodrop.results.trial import TrialRecord
from nodrop.results.writer import RunWriter
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.journal import new_label
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.hosts.processes import OPEN_JOURNALS
from nodrop.testbed.hosts.relay import Held
from nodrop.testbed.hosts.ssh import COMMAND_TIMEOUT_S, SshHost
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.images.image_cache import Image, find_image
from nodrop.testbed.images.sut_bits import resolve_bits
from nodrop.testbed.labs.api import Checked, Lab, Storage
from nodrop.untrusted.json_text import NotJson, member, one_line

BOOT_TIMEOUT_S = 600.0
"""Servers test their memory before they boot."""
SETTLED_TIMEOUT_S = 120.0
"""Once sshd lets us in: the port gets its carrier, other services start."""
PAUSE_S = 1.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"
REBOOT = f"""\
[ -z "$({OPEN_JOURNALS})" ] || exit 9
sync
systemctl reboot || reboot || shutdown -r now
"""
"""Not while another run measures there: its journal is open as long as it lives."""
BUSY = 9
STATE = ("kernel", "cpus", "governor", "boost", "smt", "port", "mtu", "offloads_on",
         "further_ports")  # fmt: skip
"""Facts that change a figure. After each boot they must be what they were before the first."""


@dataclass(slots=True)
class Rebooting:
    """The receiver's reboots in one run. `note` says what takes time."""

    lab: Lab
    note: Callable[[str], None]
    _before: Mapping[str, Any] | None = None

    def reboot(self) -> float:
        """The seconds until the receiver was as before. LabProblem if it does not get there."""
        look = self._look()
        _must_be_fit(look)
        self._before = self._before or _state(look)
        self.note(f"{look.what} boots")
        began = time.monotonic()
        old = self._begun()
        self._await_boot(old)
        self._await_state(self._before)
        return round(time.monotonic() - began, 3)

    def _look(self) -> Checked:
        return self.lab.look_at_receiver(f"reset-{new_label()}")

    def _host(self) -> SshHost:
        return self.lab.receiver(f"reset-{new_label()}")

    def _begun(self) -> str:
        """The id of the boot that ends."""
        with self._host() as host:
            old = _boot_id(host)
            if old == Path(BOOT_ID).read_text().strip():
                raise LabProblem(
                    f"{host.name} is the machine that nodrop runs on (its boot id is ours): a "
                    "reboot would end both",
                    hint='go to another machine, or leave out measure.reset = "reboot"',
                )
            try:
                done = host.run(["sh", "-c", REBOOT], timeout_s=COMMAND_TIMEOUT_S, check=False)
            except LabProblem:
                return old  # the line went with the host: its next boot shows it
            if done.returncode == BUSY:
                raise LabProblem(
                    f"{host.name}: another run is there, so it does not boot",
                    hint="wait for its end, or end it there (`nodrop undo --all`)",
                )
            return old

    def _await_boot(self, old: str) -> None:
        for _ in looks(BOOT_TIMEOUT_S, every_s=PAUSE_S):
            try:
                with self._host() as host:
                    if _boot_id(host) != old:
                        return
                    seen = f"{host.name}: it has not booted"
            except LabProblem as problem:  # it is down, or lets nobody in yet
                seen = str(problem)
        raise LabProblem(f"{seen}, {BOOT_TIMEOUT_S:g} s after it was to boot")

    def _await_state(self, before: Mapping[str, Any]) -> None:
        for _ in looks(SETTLED_TIMEOUT_S, every_s=PAUSE_S):
            look = self._look()
            others = [*look.problems, *_differences(look, before)]
            if not others:
                return
        raise LabProblem(f"after it booted: {others[0]}", hint="let the host set it when it boots")


def _boot_id(host: SshHost) -> str:
    return host.run(["cat", BOOT_ID]).stdout.strip()


def _must_be_fit(look: Checked) -> None:
    if look.problems:
        raise LabProblem(look.problems[0])


def _state(look: Checked) -> Json:
    return {name: look.facts.get(name) for name in STATE}


def _differences(look: Checked, before: Mapping[str, Any]) -> list[str]:
    now = _state(look)
    return [
        f"{look.what}: {name} is {now[name]}, and was {before[name]}"
        for name in STATE
        if now[name] != before[name]
    ]


LOOK = 'test -f "/root/.cache/nodrop/images/$1/$2/manifest.json"'


def copied_images(
    host: SshHost, images: Iterable[Image], note: Callable[[str], None]
) -> Iterator[CopiedImage]:
    """Copies the images that the receiver lacks."""
    for image in {one.sha256: one for one in images}.values():
        done = host.run(["sh", "-c", LOOK, "nodrop", image.name, image.sha256], check=False)
        if done.returncode != 0:
            note(f"image {image.name} {image.sha256[:12]} is copied to {host.name}")
            yield CopiedImage(image=image, tar=copy_of(host, image.folder / "rootfs.tar"))


def images_of(experiment: Experiment, plan: Plan) -> Mapping[str, Image]:
    """Name of an image, from the experiment or as its SUT has it by default → the image here. If
    this machine has none, the receiver's own is taken, or its own program."""
    found: dict[str, Image] = {}
    for cell in plan.cells:
        sut = plugins.build_sut(cell.sut, base=experiment.base)
        recipe = sut.needs_bits()
        if recipe is None or cell.sut.get("binary"):
            continue
        try:
            bits = resolve_bits(cell.sut, recipe, base=experiment.base, version=sut.version)
            if bits.kind == "image":
                found[str(cell.sut.get("image") or recipe)] = find_image(bits.sha256)
        except (BadInput, LabProblem):
            continue  # it may be there
    return found


def run_elsewhere(
    experiment: Experiment,
    lab: LabSource,
    *,
    out: Path,
    resume: bool,
    progress: Progress,
    yes: bool = False,
    plan: Plan | None = None,
) -> RunOutcome:
    """Runs an experiment like `run_experiment` (measure/manager.py), with nodrop on the
    receiver."""
    plan = plan or make_plan(experiment)
    must_be_meant(plan, yes=yes)
    made, how = plugins.build_lab(lab), experiment.measure.reset
    if how != "none":
        experiment.blaming(lambda: resettable(made, how))
    found = find_run(out, experiment.name) if resume else None
    resets = Rebooting(made, progress.note) if how == "reboot" else None
    with (
        interrupts(),
        storage_of(lab) as storage,
        _RunHere(experiment, lab, plan, progress, resets, storage, out=out, found=found) as kept,
    ):
        while True:
            asking = _Asking(experiment, lab, plan, found=kept.found, yes=yes)
            with asking.far(progress.note) as far:
                kept.until_it_ends(far)
            if not kept.reset_due:
                break
            kept.reset()
        return RunOutcome(directory=kept.writer.path, records=kept.writer.records())


def doctor_elsewhere(experiment: Experiment, lab: LabSource, plan: Plan) -> DoctorAnswer:
    asking = _Asking(experiment, lab, plan, only_look=True)
    try:
        with interrupts(), storage_of(lab), asking.far(_unsaid) as far:
            end = far.report()
            if not isinstance(end, Ended):
                raise LabProblem(f"{far.name}: nodrop there says {end.report}, not what it found")
            if end.error is not None:
                raise end.error.to_raise()
    except NodropError as problem:
        return DoctorAnswer(problems=(str(problem),), notes=tuple(plan.notes()))
    found = end.findings or DoctorAnswer()
    problems, notes, disturbing = (
        tuple(one_line(words, longest=2000) for words in each)
        for each in (found.problems, found.notes, found.disturbing)
    )
    return replace(found, problems=problems, notes=notes, disturbing=disturbing)


def _unsaid(_words: str) -> None:
    """A doctor says what is wrong, and no more."""


@dataclass(frozen=True, slots=True)
class _Asking:
    """The task of the other half."""

    experiment: Experiment
    lab: LabSource
    plan: Plan
    found: Path | None = None
    """The run that is gone on with."""
    yes: bool = False
    only_look: bool = False

    @contextmanager
    def far(self, note: Callable[[str], None]) -> Iterator[Far]:
        """The other half, which has its task."""
        experiment, plan = self.experiment, self.plan
        files = experiment.blaming(lambda: named_files(experiment, plan))
        lab = plugins.build_lab(self.lab)
        with ExitStack() as standing:
            try:
                sender = lab.held_sender()
                sender.__enter__()
                standing.callback(sender.close)
                receiver = standing.enter_context(lab.receiver(f"front-{new_label()}"))
                control = placed(receiver, machines=[_machine(sender)])
                far = standing.enter_context(Far(receiver, control, sender))
                copies = dict(copied(receiver, files))
                named = images_of(experiment, plan)
                images = tuple(copied_images(receiver, named.values(), note))
                far.greeted()
            except LabProblem as problem:
                raise NotReady(problem.message, hint=problem.hint) from problem
            far.order(self._task(copies, images, {k: one.sha256 for k, one in named.items()}))
            yield far

    def _task(
        self, copies: dict[str, str], images: tuple[CopiedImage, ...], image_names: dict[str, str]
    ) -> Task:
        controller, lab = self.plan.controller, self.lab
        ours = {k: value for k, value in lab.table.items() if k not in ("ssh_config", "storage")}
        return Task(
            experiment=self.experiment,
            lab=replace(lab, table=ours),
            plan=self.plan.facts,
            heeds_void=controller.heeds_void,
            beforehand=tuple(controller.beforehand()),
            copies=copies,
            images=images,
            image_names=image_names,
            earlier=None if self.found is None else _earlier(self.found),
            argv=tuple(sys.argv),
            yes=self.yes,
            only_look=self.only_look,
        )


def _machine(sender: Held) -> str:
    """The sender's machine type from `uname -m`; "" if it gives none, which is reported where it is
    used."""
    said = run_command(
        sender.command("uname -m"),
        shown=["uname", "-m"],
        where=sender.name,
        env=sender.environment(),
        timeout_s=COMMAND_TIMEOUT_S,
        check=False,
    )
    return said.stdout.strip()


def _earlier(path: Path) -> EarlierTrials:
    opened = open_run(path)
    if "controller" not in opened.manifest:
        raise BadInput(f"{path}: its manifest names no controller; start a new run")
    lines = tuple(record.to_line() for record in opened.trials.records)
    return EarlierTrials(manifest=opened.manifest, lines=lines)


class _RunHere:
    """The run directory here, which the reports of the other half fill."""

    def __init__(
        self,
        experiment: Experiment,
        lab: LabSource,
        plan: Plan,
        progress: Progress,
        resets: Rebooting | None,
        storage: Storage | None,
        *,
        out: Path,
        found: Path | None,
    ) -> None:
        self._experiment, self._lab, self._plan = experiment, lab, plan
        self._progress, self._out, self._found = progress, out, found
        self._resets, self._storage = resets, storage
        self.reset_due = False
        """The other half has ended so that its host can boot, and the run goes on after that."""
        self._reset_s: float | None = None
        """Time that the boot took; None once a SUT has started since."""
        self._noted: set[str] = set()
        self._far: Far
        self._writer: RunWriter | None = None
        self._broke_off = False
        """A file of the trial has not come whole: the user has ended the run in its midst."""
        self._half_written = found is not None
        """A trial may be: its rest may be there."""
        self._done: list[TrialRecord] = []
        self._trial: TrialInput | None = None
        self._folder: TrialFolder | None = None
        self._there = ""

    @property
    def writer(self) -> RunWriter:
        assert self._writer is not None
        return self._writer

    @property
    def found(self) -> Path | None:
        """The run that is gone on with."""
        return self._writer.path if self._writer else self._found

    def reset(self) -> None:
        assert self._resets is not None
        self._reset_s, self.reset_due = self._resets.reboot(), False

    def until_it_ends(self, far: Far) -> None:
        self._far = far
        try:
            end = self._followed()
        except Interrupted as ended:
            self._far.end(ended.exit_code - 128)
            try:
                self._followed()
            except LabProblem as problem:
                ended.left = problem.message
            except NotJson as problem:
                ended.left = f"{self._far.name}: what it says makes no sense: {problem}"
            raise
        except NotJson as problem:
            raise LabProblem(f"{self._far.name}: what it says makes no sense: {problem}") from None
        if end.interrupted:
            raise LabProblem(f"{self._far.name}: nodrop was ended there")
        if end.error is not None:
            raise self._local(end.error).to_raise()

    def _local(self, error: FarError) -> FarError:
        """The run is here, not there; only what a system refused, it refused there."""
        here = self._writer.path if self._writer else self._found
        if not self._there or here is None:
            return error
        hint = None if error.hint is None else error.hint.replace(self._there, str(here))
        if error.kind is ErrorKind.SYSTEM_REFUSED:
            return replace(error, hint=hint)
        return replace(error, message=error.message.replace(self._there, str(here)), hint=hint)

    def _followed(self) -> Ended:
        """Does what each report asks for, until the last one."""
        while not isinstance(report := self._far.report(), Ended):
            with keeping_in(self.found or self._out):
                self._hear(report)
        return report

    def _hear(self, report: Report) -> None:
        progress = self._progress
        match report:
            case RunFolder():
                self._there = report.path
            case CurrentManifest():
                self._manifest(report.manifest)
            case Note():
                self._note(one_line(report.words, longest=2000))
            case Request():
                self._far.order(self._next(report.kept))
            case TrialStarted():
                self._folder = self.writer.trial(self._asked().run_name)
                progress.trial_started(self._asked())
            case Phase():
                progress.phase(one_line(report.name))
            case LiveReading():
                if self._folder is not None:
                    self._folder.append_live(asdict(report.live))
                progress.live(report.live)
            case FileHead():
                self._take(report)
            case TrialEnded() if not self._broke_off:
                record = TrialRecord.from_line(report.line)
                self._reset_s = None
                self.writer.finish_elsewhere(record)
                self._done.append(record)
                if report.fetched:
                    words = f"fetched from {self._far.name}, measured at {record.started_utc}"
                    progress.note(f"{record.run}: {words}")
                progress.trial_ended(self._asked(), record)
                self._say_notes()

    def _next(self, kept: str | None) -> Next:
        """The answer to `next`; one without a trial ends the other half. `kept`: fingerprint of
        what was measured there and has not come over, for which nothing is to boot."""
        trial = self._plan.controller.next(self._done)
        if trial is not None and kept == fingerprint(trial, self.writer.manifest["plan_sha256"]):
            self._trial = trial
            self.writer.trial(trial.run_name, goes_on=True)
            return Next(trial=trial, have=begun_of(self.writer.path, trial.run_name))
        if self._half_written:
            self.writer.remove_half_written()
            self._half_written = False
        new_world = trial is not None and trial.new_world
        self.reset_due = self._resets is not None and new_world and self._reset_s is None
        if trial is not None and new_world:
            trial = replace(trial, reset_s=self._reset_s)
        self._trial = None if self.reset_due else trial
        return Next(trial=self._trial)

    def _asked(self) -> TrialInput:
        if self._trial is None:
            raise NotJson("of a trial that was not asked for")
        return self._trial

    def _take(self, head: FileHead) -> None:
        if head.path[1:2] != (self._asked().run_name,):
            raise NotJson("a file of another trial")
        chunks = self._far.file(head.size - head.begun)
        before, self._broke_off = self._broke_off, True
        self.writer.take(head.path, chunks, sha256=head.sha256, begun=head.begun)
        self._broke_off = before

    def _manifest(self, manifest: Json) -> None:
        if self.reset_due:  # the other half has ended, and the run has not
            manifest.pop("finished_utc", None)
        if self._writer is not None:
            self._writer.update_manifest(manifest)
            return
        plan = member(manifest, "plan_sha256", str)
        if self._found is not None:
            self._writer = RunWriter.resume(
                self._found,
                plan_sha256=plan,
                asked=question(self._experiment),
                half_written_stays=True,
            )
        else:
            self._writer = RunWriter.create(
                self._out,
                self._experiment.name,
                experiment=self._experiment.text,
                lab=self._lab.text,
                plan_sha256=plan,
                manifest=manifest,
            )
        keep_raw_files(self._writer, self._storage)
        self._done = to_go_on_with(self._writer, self._plan.controller.heeds_void)
        self._progress.plan_started(
            self._plan, directory=self._writer.path, earlier=tuple(self._done)
        )
        self._say_notes()

    def _note(self, words: str) -> None:
        """After a boot the other half begins anew, with notes of the plan that were said."""
        if self._reset_s is None or words not in self._noted:
            self._progress.note(words)
        self._noted.add(words)

    def _say_notes(self) -> None:
        for note in self.writer.notes():
            self._progress.note(note)

    def __enter__(self) -> _RunHere:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, ended: BaseException | None, _: object
    ) -> None:
        if self._writer is not None:
            if isinstance(ended, NodropError | Interrupted):
                ended.ended_run = str(self._writer.path)
            self._progress.finished(self._writer.path, self._writer.records())
            self._writer.close(failed=kind is not None)
