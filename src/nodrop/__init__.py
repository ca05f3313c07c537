"""nodrop: how much traffic an IDS carries before it drops a packet, and where the packets die."""

import os

__version__ = "0.1.0"

# Before numpy is loaded. Our fits are small: with a BLAS thread per CPU one takes ten times as
# long, and it spins on the CPUs of a SUT that stands by.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
