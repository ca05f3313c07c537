"""`nodrop run --fleet`: the run of a plan that many pairs share."""

from __future__ import annotations

import logging
import re
import secrets
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from nodrop import plugins
from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import FleetFile, FleetSource, LabSource, kubernetes_options
from nodrop.errors import BadInput, LabProblem, NodropError, NotReady, interrupts
from nodrop.fleet.members import Members, Pairs, in_parallel
from nodrop.fleet.worker import (
    CONFIG,
    PAIR,
    QUIET,
    WORKER,
    Job,
    Sits,
    Workers,
    environment,
    imported,
    in_a_line,
    started,
)
from nodrop.measure.manager import (
    Crew,
    RunOutcome,
    keep_raw_files,
    keep_run,
    must_be_meant,
    run_plain,
    run_writer,
)
from nodrop.measure.plan import Progress, make_plan
from nodrop.results.writer import plan_sha256
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.folders import scratch
from nodrop.testbed.hosts.rights import in_user_namespace
from nodrop.testbed.labs.api import OnHosts, Storage

PACKAGE = "dask-kubernetes"
API = "kubernetes.dask.org/v1"
PORT = 8786
IDLE_S = 60
"""So long after this process has gone, the operator deletes what was made for it."""
GONE_S = 90.0
"""A pod has half a minute to undo."""
LOOK_S = 0.5
ROUTES = ["distributed.http.health", "nodrop.fleet.ending"]
"""HTTP routes of a scheduler that Kubernetes and the operator ask."""
KEYS = "/etc/nodrop-tls"
"""In each pod: the certificate of this run, and its key."""
IN_PODS: Mapping[str, Any] = {
    **CONFIG,
    "distributed.scheduler.http.routes": ROUTES,
    "distributed.comm.require-encryption": True,
    "distributed.comm.tls.ca-file": f"{KEYS}/cert",
    **{
        f"distributed.comm.tls.{role}.{what}": f"{KEYS}/{what}"
        for role in ("scheduler", "worker")
        for what in ("cert", "key")
    },
}
"""Configuration of dask in pods."""
ALONE: Json = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"dask.org/component": "worker"}},
                "namespaceSelector": {},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}
"""On a node without another worker of dask, of any run."""
ROOT: Json = {"privileged": True, "runAsUser": 0}


class Pods(Workers):
    hint = (
        "kubectl get events says more; for an image or a node that takes longer, set wait_s in "
        "the fleet file"
    )

    def __init__(self, kr8s: Any, cluster: Any) -> None:
        self._kr8s, self._made = kr8s, cluster

    def serve(self, client: Any) -> None:
        # While there is a task, though none may do it, the operator does not take us for gone.
        self._held = client.submit(int, resources={"nobody": 1}, pure=False)
        _delete_if_idle(self._made, IDLE_S)

    def why_none(self) -> str:
        try:
            made, pods = self._get("deployments"), self._get("pods")
        except Exception as error:  # of kr8s, httpx, ssl …
            return f"Kubernetes does not answer: {in_a_line(error)}"
        if not made:
            return f"dask's operator makes nothing of DaskCluster {self._made.name}: does it run?"
        whys = [(_part(one), self._line(_why_no_pod(one))) for one in made]
        whys += [(_part(one), self._line(_why_not_ready(one))) for one in pods]
        return ", ".join(
            f"{f'{count} {part}s' if count > 1 else part} {why}"
            for (part, why), count in sorted(Counter(whys).items())
            if why
        )

    def _line(self, words: str) -> str:
        """Without names of pods, of which many may have the same to say."""
        return " ".join(re.sub(rf"{self._made.name}[-\w]*", "…", words).split())

    def _get(self, kind: str) -> Sequence[Any]:
        label = f"dask.org/cluster-name={self._made.name}"
        return [*self._kr8s.get(kind, namespace=self._made.namespace, label_selector=label)]

    def scheduler(self, wait_s: float) -> Any:
        """Its pod, once it answers."""
        until = time.monotonic() + wait_s
        while True:
            for pod in self._get("pods"):
                if _part(pod) == "scheduler" and pod.ready():
                    return pod
            if time.monotonic() > until:
                why = f"no scheduler in Kubernetes after {wait_s:g} s: {self.why_none()}"
                raise NotReady(why, hint=self.hint)
            time.sleep(LOOK_S)


def _part(made: Any) -> str:
    return str(made.labels.get("dask.org/component", ""))


def _why_no_pod(deployment: Any) -> str:
    for one in deployment.raw.get("status", {}).get("conditions", ()):
        if one["type"] == "ReplicaFailure" and one["status"] == "True":
            return f"without a pod ({one['message']})"
    return ""


def _why_not_ready(pod: Any) -> str:
    status = pod.raw.get("status", {})
    phase = status.get("phase", "Pending")
    for one in status.get("conditions", ()):
        if one.get("reason") == "Unschedulable":
            return f"{phase} ({one['message']})"
    for one in status.get("containerStatuses", ()):
        now = one["state"]
        ended = now.get("terminated") or one.get("lastState", {}).get("terminated")
        if ended:
            words = ended.get("message") or _last_words(pod) or ended.get("reason")
            return f"ended with exit code {ended['exitCode']} ({words})"
        if "waiting" in now:
            return f"{phase} ({now['waiting'].get('message') or now['waiting'].get('reason')})"
    return "" if phase == "Running" else str(phase)


def _last_words(pod: Any) -> str:
    with suppress(Exception):  # there may be none
        return str([*pod.logs(tail_lines=1)][-1])
    return ""


@contextmanager
def in_pods(file: FleetFile) -> Iterator[Pods]:
    """LabProblem if Kubernetes refuses; NotReady if the scheduler does not start in time."""
    operator, kr8s = imported("dask_kubernetes.operator", PACKAGE), imported("kr8s", PACKAGE)
    security = imported("distributed", "distributed").Security.temporary()
    with ExitStack() as stack:
        try:
            cluster = kr8s.objects.new_class("DaskCluster", API, asyncio=False)(
                cluster_spec(operator.make_cluster_spec, file),
                namespace=kubernetes_options(file).namespace or kr8s.api().namespace,
            )
            cluster.create()
            stack.callback(_delete, cluster)
            kr8s.objects.Secret(_keys(cluster, security), namespace=cluster.namespace).create()
            pods = Pods(kr8s, cluster)
            forward = pods.scheduler(file.wait_s).portforward(PORT, "auto")
            pods.cluster = f"tls://127.0.0.1:{stack.enter_context(forward)}"
            pods.security = security
        except NodropError:
            raise
        except Exception as error:  # whatever that package raises, it is about the user's cluster
            raise LabProblem(
                f"Kubernetes: {in_a_line(error)}",
                hint="see that KUBECONFIG is right, and that dask's operator is installed",
            ) from error
        yield pods


def cluster_spec(make: Callable[..., Json], file: FleetFile) -> Json:
    """A pod for each pair, with a node for itself."""
    options = kubernetes_options(file)
    name = f"nodrop-{file.name[:30]}-{secrets.token_hex(4)}"
    spec = make(
        name,
        image=options.image,
        n_workers=len(file.pairs),
        resources=options.resources,
        env=options.env,
    )
    scheduler, worker = spec["spec"]["scheduler"]["spec"], spec["spec"]["worker"]["spec"]
    worker |= {"affinity": ALONE, **options.pod}
    worker["containers"][0] |= {"securityContext": ROOT, **options.container}
    commands = (
        (scheduler, ["dask", "scheduler", "--no-dashboard"]),
        (worker, ["dask", "worker", *WORKER, "--no-nanny", "--name", "$(DASK_WORKER_NAME)"]),
    )
    ours = {
        **environment(IN_PODS),
        "DASK_SCHEDULER_ADDRESS": f"tls://{name}-scheduler:{PORT}",
    }
    for one, command in commands:
        first = one["containers"][0]
        theirs = first.get("env") or ()
        first["args"] = command
        first["env"] = [*({"name": key, "value": ours[key]} for key in ours), *theirs]
        mount = {"name": "nodrop-tls", "mountPath": KEYS, "readOnly": True}
        first["volumeMounts"] = [*first.get("volumeMounts", ()), mount]
        keys = {"name": "nodrop-tls", "secret": {"secretName": name, "defaultMode": 0o400}}
        one["volumes"] = [*one.get("volumes", ()), keys]
        one.setdefault("dnsPolicy", "ClusterFirstWithHostNet")  # as ClusterFirst, for other pods
    return spec


def _keys(cluster: Any, security: Any) -> Json:
    """The Secret, which goes with its cluster."""
    owner = {
        "apiVersion": API,
        "kind": "DaskCluster",
        "name": cluster.name,
        "uid": cluster.metadata.uid,
    }
    made = security.get_tls_config_for_role("worker")
    return {
        "metadata": {"name": cluster.name, "ownerReferences": [owner]},
        "stringData": {what: made[what] for what in ("cert", "key")},
    }


def _delete_if_idle(cluster: Any, seconds: int) -> None:
    """0: never. Else the operator asks the scheduler every 5 s, and if the scheduler is gone by
    then, it waits for minutes and does nothing else."""
    cluster.patch({"spec": {"idleTimeout": seconds}})


def _delete(cluster: Any) -> None:
    """With all that was made of it: pods undo before they end."""
    until = time.monotonic() + GONE_S
    try:
        if cluster.exists():  # else the operator was faster
            _delete_if_idle(cluster, 0)
            cluster.delete(propagation_policy="Foreground")
        while cluster.exists():
            if time.monotonic() > until:
                raise TimeoutError(f"it is still there after {GONE_S:g} s")
            time.sleep(LOOK_S)
    except Exception as error:
        raise LabProblem(
            f"DaskCluster {cluster.name} may be left in Kubernetes: {in_a_line(error)}",
            hint=f"kubectl delete daskcluster {cluster.name} -n {cluster.namespace}",
        ) from error


CONNECT_TIMEOUT_S = 20.0
UNDOES = "nodrop.fleet.ending"
"""Imports dask, which may be missing."""


@contextmanager
def connected(source: FleetSource) -> Iterator[tuple[Any, Workers]]:
    """A `distributed.Client`, and who starts workers. NotReady if no scheduler answers."""
    file = source.file
    dask, distributed = (
        imported("dask", "distributed"),
        imported("distributed", "distributed"),
    )
    with ExitStack() as stack:
        workers = Workers()
        stack.enter_context(dask.config.set(CONFIG))
        # What its client logs is a traceback; what it means is said.
        stack.enter_context(distributed.utils.silence_logging_cmgr(logging.CRITICAL))
        if file.cluster == "local":
            private = stack.enter_context(scratch())
            stack.enter_context(dask.config.set({"temporary-directory": str(private)}))
            cluster = stack.enter_context(_local(source, distributed))
        elif file.cluster == "scheduler":
            cluster = file.address
        else:
            start = in_pods if file.cluster == "kubernetes" else started
            workers = stack.enter_context(start(file))
            cluster = workers.cluster
        asked = file.wait_s if "wait_s" in file.model_fields_set else CONNECT_TIMEOUT_S
        try:
            client = distributed.Client(
                cluster,
                security=workers.security,
                timeout=asked,
                set_as_default=False,
            )
        except (OSError, ValueError, distributed.comm.CommClosedError) as error:
            raise NotReady(
                f"{source.path}: no dask scheduler answers at {cluster}: {error}",
                hint="start it with `dask scheduler`, and see that this host may reach it",
            ) from None
        stack.enter_context(client)
        workers.serve(client)
        with suppress(Exception):  # of a worker with another nodrop, which is drained for that
            client.register_plugin(imported(UNDOES, "distributed").Undoes())
        yield client, workers


def _local(source: FleetSource, distributed: Any) -> Any:
    """A process for each pair. Whoever may talk to a worker may run what he likes there, so the
    sockets, on loopback, want a certificate that only this run has."""
    if in_user_namespace():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)
    return distributed.LocalCluster(
        n_workers=len(source.pairs),
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address=None,
        scheduler_kwargs=dict(QUIET),  # else its HTTP port is 8787, which another fleet may have
        security=True,
        resources={PAIR: 1},
        memory_limit=0,
        silence_logs=50,
    )


def run_fleet(
    experiment: Experiment,
    fleet: FleetSource,
    sits: Callable[[LabSource], Sits],
    *,
    out: Path,
    resume: bool,
    progress: Progress,
    yes: bool = False,
) -> RunOutcome:
    """Runs an experiment as `run_experiment` does, on the pairs of a fleet. Every pair looks for
    problems of its own before a trial begins. `sits`: where the receiver of a lab is."""
    must_share_nothing(fleet)
    plan = make_plan(experiment)
    must_be_meant(plan, yes=yes)
    file, run = fleet.file, secrets.token_hex(8)
    local = file.cluster == "local"
    jobs = {
        name: Job(
            run=run,
            pair=name,
            experiment=experiment,
            lab=lab,
            own_process_group=local,
            sits=sits(lab),
        )
        for name, lab in fleet.pairs.items()
    }
    kept = file.storage
    storage = Storage(kept.host, kept.path, config=file.ssh_config) if kept else None
    with interrupts() as gate, storage or nullcontext(), connected(fleet) as found:
        client, workers = found
        members = Members(client, file, jobs, workers)
        try:
            members.begin(progress.note)
            # Pairs may come and go between sittings; a pair that stays has the same lab (Pairs).
            plain = run_plain(experiment, plan, lab={"fleet": file.name}, inputs=members.inputs)
            sha256 = plan_sha256(plain)
            invariant = file.host_invariant
            plan = in_parallel(plan, len(members.standing), host_invariant=invariant)
            with run_writer(
                experiment, fleet.text, out, sha256, resume=resume, fleet=file.name
            ) as writer:
                keep_raw_files(writer, storage)
                begin = partial(Pairs, members, plan, writer, progress, host_invariant=invariant)
                return keep_run(plan, _at_work(begin), writer, gate, progress, _notes(fleet))
        finally:
            members.leave()


def must_share_nothing(fleet: FleetSource) -> None:
    """BadInput if two pairs would lock each other out. To take turns would save no time."""
    taken: dict[str, LabSource] = {}
    for lab in fleet.pairs.values():
        for what in _alone_in(lab, here=fleet.file.cluster == "local"):
            if what in taken:
                raise BadInput(
                    f"{fleet.path}: {taken[what].path} and {lab.path} both measure with {what}, "
                    "which has one run at a time; a pair needs hosts of its own"
                )
        taken |= dict.fromkeys(_alone_in(lab, here=fleet.file.cluster == "local"), lab)


def _alone_in(lab: LabSource, *, here: bool) -> Iterator[str]:
    """`here`: all workers are on this machine."""
    try:
        made = plugins.build_lab(lab)
    except BadInput:  # said where it is used: files that it names may be on the worker's host alone
        return
    for host, port in made.ends() if isinstance(made, OnHosts) else ():
        if host:
            yield f"host {host}"
        elif here:
            yield f"port {port} of this machine"


def _notes(fleet: FleetSource) -> list[str]:
    storing = [name for name, lab in fleet.pairs.items() if "storage" in lab.table]
    return [f"{name}: its [storage] is not used: name one in the fleet file" for name in storing]


@contextmanager
def _at_work(begin: Callable[[], Pairs]) -> Iterator[Crew]:
    pairs = begin()
    try:
        yield pairs
    finally:
        pairs.leave()
