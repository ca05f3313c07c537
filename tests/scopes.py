"""Groups of tests that stay with one worker of pytest-xdist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class Scopes(LoadScopeScheduling):
    """Whole runs go test by test; all others file by file, to share what their fixtures set up.
    Tests in containers share a daemon; emulated guests, which take all CPUs, follow each other."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        room = file.split("/")[1]
        if room == "vm" or file.startswith(("tests/ssh/test_guest", "tests/ssh/test_libvirt")):
            return "emulated"
        return {"e2e": nodeid, "docker": room}.get(room, file)

    def remove_node(self, node: WorkerController) -> str | None:
        """Gives the tests left in a crashed worker to others, but not the one it crashed in."""
        for scope in self.assigned_work[node].values():
            for nodeid, is_over in scope.items():
                if not is_over:
                    scope[nodeid] = True
                    super().remove_node(node)
                    return nodeid
        return super().remove_node(node)
