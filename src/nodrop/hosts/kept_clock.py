"""Clocks that another one keeps (NTP; PTP by phc2sys) are held against each other by TAI.

The kernel says whether its clock is kept, and how far it may be off: `maxerror` of adjtimex(2). Two
that PTP keeps are known to a microsecond; a question over ssh and its answer take many.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, replace
from typing import Literal

from nodrop.protocol.events import TaiAnswer

STA_UNSYNC = 0x40  # include/uapi/linux/timex.h


class _Timex(ctypes.Structure):
    """struct __kernel_timex of a 64-bit machine (include/uapi/linux/timex.h)."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_longlong),
        ("freq", ctypes.c_longlong),
        ("maxerror", ctypes.c_longlong),
        ("esterror", ctypes.c_longlong),
        ("status", ctypes.c_int),
        ("to_tick", ctypes.c_longlong * 6),
        ("to_shift", ctypes.c_longlong * 2),
        ("shift", ctypes.c_int),
        ("to_stbcnt", ctypes.c_longlong * 5),
        ("tai", ctypes.c_int),
        ("unused", ctypes.c_int * 11),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFix:
    """How to turn the clock of another host into ours."""

    offset_ns: int
    """Add to its CLOCK_MONOTONIC to get the controller's."""
    bound_ns: int
    """The offset cannot be further off than this."""
    real_offset_ns: int
    """Its CLOCK_REALTIME minus ours, for file names and logs."""
    by: Literal["round trip", "TAI"] = "round trip"


def own_tai() -> TaiAnswer | None:
    """None if this host's clock runs free."""
    kept = _Timex()
    if ctypes.CDLL(None).adjtimex(ctypes.byref(kept)) < 0:
        return None
    if kept.status & STA_UNSYNC or not kept.tai:
        return None
    before, tai, after = (
        time.monotonic_ns(),
        time.clock_gettime_ns(time.CLOCK_TAI),
        time.monotonic_ns(),
    )
    return {
        "ahead_ns": tai - (before + after) // 2,
        "max_error_ns": kept.maxerror * 1000 + after - before,
    }


def closer(found: ClockFix, theirs: TaiAnswer | None, ours: TaiAnswer | None) -> ClockFix:
    """By TAI, if that is closer than the round trip, and the two agree: else a clock that says that
    it is kept, and is not, would be believed."""
    if theirs is None or ours is None:
        return found
    offset_ns = theirs["ahead_ns"] - ours["ahead_ns"]
    bound_ns = theirs["max_error_ns"] + ours["max_error_ns"]
    moves_ns = offset_ns - found.offset_ns
    if bound_ns >= found.bound_ns or abs(moves_ns) > found.bound_ns + bound_ns:
        return found
    real_ns = found.real_offset_ns - moves_ns
    return replace(found, offset_ns=offset_ns, bound_ns=bound_ns, real_offset_ns=real_ns, by="TAI")
