"""Undoing by a worker of dask before it ends, whatever asked it to end. When it starts, it undoes
what a killed worker before it left there. Also the one HTTP route of a scheduler in Kubernetes.

A job of SLURM that is cancelled, or whose time is over, gets SIGTERM, as all its processes do, and
SIGKILL half a minute later. A worker that loses its scheduler ends by itself.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import Any

from distributed import WorkerPlugin
from distributed.http.scheduler.api import CheckIdleHandler

from nodrop.errors import NodropError
from nodrop_fleet.worker import leave_all, undo_dead, will_end


class Undoes(WorkerPlugin):
    name = "nodrop"

    async def setup(self, worker: Any) -> None:
        with suppress(NodropError, OSError):  # said once a pair begins here
            await asyncio.get_running_loop().run_in_executor(None, undo_dead)
        with suppress(RuntimeError, ValueError):  # not the main thread of its process
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._ends, worker)

    def _ends(self, worker: Any) -> None:
        will_end()
        self._closing = asyncio.ensure_future(worker.close(nanny=False, reason="SIGTERM"))

    async def teardown(self, worker: Any) -> None:
        del worker
        await asyncio.get_running_loop().run_in_executor(None, leave_all)


routes: list[tuple[str, Any, dict[str, Any]]] = [("/api/v1/check_idle", CheckIdleHandler, {})]
"""Tells dask's operator since when the scheduler has nothing to do. Other routes of dask would let
anyone in the cluster end workers."""
