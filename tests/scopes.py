"""Which tests stay with one worker of pytest-xdist."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling


class Scopes(LoadScopeScheduling):
    """Whole runs go test by test; all others file by file, to share what their fixtures set up;
    those in containers share a daemon."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        room = file.split("/")[1]
        return {"e2e": nodeid, "docker": room}.get(room, file)
