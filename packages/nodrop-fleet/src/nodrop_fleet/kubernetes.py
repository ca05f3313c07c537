"""Workers in pods of Kubernetes, one for each pair, by dask's operator."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from nodrop.errors import LabProblem, NodropError, NotReady
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.waiting import looks
from nodrop_fleet.file import FleetFile, kubernetes_options
from nodrop_fleet.worker import CONFIG, WORKER, Workers, environment, imported, in_a_line

PACKAGE = "dask-kubernetes"
API = "kubernetes.dask.org/v1"
PORT = 8786
IDLE_S = 60
"""Time after which the operator deletes what was made for this process, once it has gone."""
GONE_S = 90.0
"""A pod has half a minute to undo."""
LOOK_S = 0.5
ROUTES = ["distributed.http.health", "nodrop_fleet.ending"]
"""HTTP routes of a scheduler that Kubernetes and the operator ask."""
KEYS = "/etc/nodrop-tls"
"""Folder in each pod with the certificate of this run, and its key."""
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
"""Rule for a node without another worker of dask, of any run."""
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
        whys += [(_part(pod), self._line(_why_not_ready(pod))) for pod in pods]
        return ", ".join(
            f"{f'{count} {part}s' if count > 1 else part} {why}"
            for (part, why), count in sorted(Counter(whys).items())
            if why
        )

    def _line(self, words: str) -> str:
        """The words without names of pods, of which many may have the same to say."""
        return " ".join(re.sub(rf"{self._made.name}[-\w]*", "…", words).split())

    def _get(self, kind: str) -> Sequence[Any]:
        label = f"dask.org/cluster-name={self._made.name}"
        return [*self._kr8s.get(kind, namespace=self._made.namespace, label_selector=label)]

    def scheduler(self, wait_s: float) -> Any:
        """The scheduler's pod, once it answers."""
        for _ in looks(wait_s, every_s=LOOK_S):
            for pod in self._get("pods"):
                if _part(pod) == "scheduler" and pod.ready():
                    return pod
        why = f"no scheduler in Kubernetes after {wait_s:g} s: {self.why_none()}"
        raise NotReady(why, hint=self.hint)


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
    """Deletes a cluster with all that was made of it: pods undo before they end."""
    try:
        if cluster.exists():  # else the operator was faster
            _delete_if_idle(cluster, 0)
            cluster.delete(propagation_policy="Foreground")
        if all(cluster.exists() for _ in looks(GONE_S, every_s=LOOK_S)):
            raise TimeoutError(f"it is still there after {GONE_S:g} s")
    except Exception as error:
        raise LabProblem(
            f"DaskCluster {cluster.name} may be left in Kubernetes: {in_a_line(error)}",
            hint=f"kubectl delete daskcluster {cluster.name} -n {cluster.namespace}",
        ) from error
