"""HTTP route of a scheduler in Kubernetes that tells dask's operator since when it has nothing to
do. The other routes of dask's would let anyone in the cluster end workers."""

from __future__ import annotations

from typing import Any

from distributed.http.scheduler.api import CheckIdleHandler

routes: list[tuple[str, Any, dict[str, Any]]] = [("/api/v1/check_idle", CheckIdleHandler, {})]
