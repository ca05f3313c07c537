"""nodrop: how much traffic an IDS carries before it drops a packet, and where the packets die."""

import os
from importlib import import_module

__version__ = "0.2.0"

# Before numpy is loaded. Our fits are small: with a BLAS thread per CPU one takes ten times as
# long, and it spins on the CPUs of a SUT that stands by.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_API = {"Run": "Run", "open": "open_directory"}
"""Names for scripts → those of nodrop.runs, which is loaded when one is asked for."""


def __getattr__(name: str) -> object:
    if name not in _API:
        raise AttributeError(f"module nodrop has no attribute {name}")
    return getattr(import_module("nodrop.runs"), _API[name])
