"""Workers that dask starts for a run: by ssh, or as jobs of SLURM."""

from __future__ import annotations

import asyncio
import importlib
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from nodrop.config.lab_file import FleetFile
from nodrop.errors import LabProblem, NotReady

PAIR = "pair"
"""The resource that a trial needs, and a worker has once."""
WORKER = ("--nthreads", "1", "--memory-limit", "0", "--no-dashboard", "--resources", f"{PAIR}=1")
"""Options in the command of a worker: it measures one trial at a time and shows nothing."""
SCRATCH = "/var/lib/nodrop/dask"
"""Dask imports from the folder that it works in, and opens files there. Its own choice is a name in
/tmp that any user may have made first; what lies here is root's."""
CONFIG: Mapping[str, Any] = {
    "temporary-directory": SCRATCH,
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # Ten looks a second at the thread that measures, and workers that are ended for their memory.
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.terminate": False,
}
"""Configuration of dask: it shows nothing, and does nothing beside the measurement."""
QUIET: Mapping[str, Any] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
"""Options of a scheduler: no dashboard."""
CLASSES: Mapping[str, tuple[str, str, str]] = {
    "ssh": ("distributed", "SSHCluster", "asyncssh"),
    "slurm": ("dask_jobqueue", "SLURMCluster", "dask-jobqueue"),
}
"""Cluster → module, class, and the package that has to be there."""
ASK_S = 10.0


class Workers:
    """Workers of the user's scheduler, or of one on this machine: they come and go without us."""

    cluster: Any = None
    """Where their scheduler is."""
    security: Any = None
    hint = (
        "start one for each pair: dask worker ADDRESS --name PAIR --nthreads 1 "
        f"--resources {PAIR}=1 --local-directory {SCRATCH}"
    )

    def serve(self, client: Any) -> None:
        """From now on."""

    def why_none(self) -> str:
        """The reason that keeps workers from coming; empty if it cannot be known."""
        return ""

    def again(self) -> str:
        """Starts those that ended. Says what went wrong at the last time, once."""
        return ""


class Started(Workers):
    """By a class of dask's."""

    hint = "see what they wrote, there"

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self._starts: Future[None] | None = None

    def again(self) -> str:
        if self._starts is not None:
            if not self._starts.done():
                return ""
            error, self._starts = self._starts.exception(), None
            if error is not None:
                return f"no worker could be started: {in_a_line(error)}"
        loop = self.cluster.loop.asyncio_loop
        self._starts = asyncio.run_coroutine_threadsafe(_all_started(self.cluster), loop)
        return ""


class SlurmJobs(Started):
    hint = (
        "squeue and scontrol show job say more, and a job's own words are in its slurm-ID.out; "
        "for a queue that takes longer, set wait_s in the fleet file"
    )

    def why_none(self) -> str:
        jobs = [str(one.job_id) for one in self.cluster.workers.values() if one.job_id]
        form = ("--noheader", "--states", "all", "--format", "job %i is %T (%r)")
        try:
            said = subprocess.run(
                ["squeue", "--jobs", ",".join(jobs), *form],
                capture_output=True,
                text=True,
                timeout=ASK_S,
                check=False,
            ).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"squeue does not answer: {error}"
        return ", ".join(sorted(line.strip() for line in said.splitlines()))


@contextmanager
def started(file: FleetFile) -> Iterator[Started]:
    """With the user's settings of dask's class. LabProblem if it cannot start."""
    module, name, package = CLASSES[file.cluster]
    if file.cluster == "ssh":
        imported("asyncssh", package)
    make = getattr(imported(module, package), name)
    with ExitStack() as stack:
        try:
            found = START[file.cluster](make, file, stack)
        except Exception as error:  # whatever those classes raise, it is about the user's cluster
            raise LabProblem(f"{name} of {package} cannot start: {in_a_line(error)}") from error
        yield found


def _by_ssh(make: Callable[..., Any], file: FleetFile, stack: ExitStack) -> Started:
    given = dict(file.options or {})
    options = {
        "silence_logs": "error",
        **given,
        "hosts": list(file.hosts or ()),
        "scheduler_options": dict(QUIET) | given.get("scheduler_options", {}),
        "worker_options": {
            "nthreads": 1,
            "memory_limit": 0,
            "dashboard": False,
            "resources": {PAIR: 1},
            **given.get("worker_options", {}),
        },
    }
    return Started(stack.enter_context(make(**options)))


def _by_slurm(make: Callable[..., Any], file: FleetFile, stack: ExitStack) -> Started:
    """A node for each pair, with nothing else on it; between all, certificates of this run."""
    given = dict(file.options or {})

    def yours(key: str) -> Any:
        dask = importlib.import_module("dask")
        return given.get(key) or dask.config.get(f"jobqueue.slurm.{key.replace('_', '-')}", None)

    if given.pop("security", True):
        place = Path(yours("shared_temp_directory") or Path.cwd()).expanduser()
        given["security"] = stack.enter_context(_certificates(place))
    if not yours("memory"):  # dask wants a figure; SLURM's 0 is all that the node has
        given |= {"memory": "1 GiB", "job_mem": yours("job_mem") or "0"}
    exports = [f"export {key}={shlex.quote(text)}" for key, text in environment(CONFIG).items()]
    cluster = make(
        **given
        | {
            "cores": 1,
            "processes": 1,
            "job_extra_directives": yours("job_extra_directives") or ["--exclusive"],
            "scheduler_options": dict(QUIET) | (yours("scheduler_options") or {}),
            "worker_extra_args": [*(yours("worker_extra_args") or ()), *WORKER],
            "job_script_prologue": [*(yours("job_script_prologue") or ()), *exports],
        }
    )
    try:
        for _ in file.pairs:
            cluster.worker_spec.update(cluster.new_worker_spec())
        cluster.sync(_all_started, cluster)
    except BaseException:
        for one in cluster.workers.values():  # else dask finds that they still run, and waits
            one.status = importlib.import_module("distributed").core.Status.failed
        cluster.close()
        raise
    return SlurmJobs(stack.enter_context(cluster))


@contextmanager
def _certificates(place: Path) -> Iterator[Any]:
    """Certificates of this run alone, in files that all nodes see and only the user may read."""
    security = importlib.import_module("distributed").Security
    made = security.temporary()
    with tempfile.TemporaryDirectory(prefix=".nodrop-tls-", dir=place) as folder:
        files = {}
        for name, text in made.get_tls_config_for_role("worker").items():
            if text is not None and "\n" in text:
                files[name] = Path(folder) / name
                files[name].touch(mode=0o600)
                files[name].write_text(text)
        roles = {
            f"tls_{role}_{name}": str(files[name])
            for role in ("client", "scheduler", "worker")
            for name in ("cert", "key")
        }
        yield security(require_encryption=True, tls_ca_file=str(files["ca_file"]), **roles)


def environment(config: Mapping[str, Any]) -> Mapping[str, str]:
    """Configuration of dask as the environment variables that dask reads."""
    names = {key: key.upper().replace(".", "__").replace("-", "_") for key in config}
    return {f"DASK_{names[key]}": str(value) for key, value in config.items()}


START: Mapping[str, Callable[[Callable[..., Any], FleetFile, ExitStack], Started]] = {
    "ssh": _by_ssh,
    "slurm": _by_slurm,
}


async def _all_started(cluster: Any) -> None:
    await cluster


def in_a_line(error: BaseException) -> str:
    """The error in one line: what a program that dask-jobqueue called wrote to stderr, if that is
    in it."""
    words = (str(error) or type(error).__name__).partition("stderr:\n")
    return "; ".join(line.strip() for line in (words[2] or words[0]).splitlines() if line.strip())


def imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise NotReady(
            f"package {package} is missing, which --fleet needs",
            hint=f"pip install '{package}'",
        ) from None
