"""Of a scheduler in Kubernetes: since when it has nothing to do, for dask's operator. Its other
answers would let anyone in the cluster end workers."""

from __future__ import annotations

from typing import Any

from distributed.http.scheduler.api import CheckIdleHandler

routes: list[tuple[str, Any, dict[str, Any]]] = [("/api/v1/check_idle", CheckIdleHandler, {})]
