"""Which tests stay with one worker of pytest-xdist, and which worker takes them."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.turns import LABS

LAB_WORKERS = 4
"""Further workers take no test of a lab: they use the CPU time that labs leave while they wait."""
NICENESS = 5
"""Niceness of the further workers: a lab's packets come first."""


def fills(worker: str) -> bool:
    """Whether a worker, by its name, is one of those beyond the labs' own."""
    return int(worker.removeprefix("gw")) >= LAB_WORKERS


class Scopes(LoadScopeScheduling):
    """Whole runs go test by test; all others file by file, to share what their fixtures set up.
    Tests in containers share a daemon; emulated guests, which take all CPUs, follow each other."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        room = file.split("/")[1]
        if room == "vm" or file.startswith(("tests/ssh/test_guest", "tests/ssh/test_libvirt")):
            return "emulated"
        return {"e2e": nodeid, "docker": room}.get(room, file)

    def _filling(self) -> str | None:
        """The next scope without a lab. A browser has deadlines of its own, so it counts as one."""
        labs = (*LABS, "browser")
        rooms = ((scope, scope.split("/")[1]) for scope in self.workqueue if "/" in scope)
        return next((scope for scope, room in rooms if room not in labs), None)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if fills(node.gateway.id) and (scope := self._filling()):
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        done = self._filling() is None and bool(self.workqueue)
        if fills(node.gateway.id) and done and not node.shutting_down:
            node.shutdown()
        else:
            super()._reschedule(node)
