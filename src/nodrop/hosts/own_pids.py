"""A child in a PID namespace of its own: it sees, and can signal, only itself."""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future

CLONE_NEWPID = 0x20000000  # include/uapi/linux/sched.h
Child = subprocess.Popen[bytes]


def in_own_pids(start: Callable[[], Child]) -> Child:
    """Process 1 of its namespace, and yet our direct child: no process stands between.

    As process 1 it is ended by a signal only if it has a handler for it, or by SIGKILL. The kernel
    changes the namespace of a thread's next children, and `enter` dies with the thread that made
    it: so the thread is one of its own, and stays until the child has ended. OSError as of `start`.
    """
    started: Future[Child] = Future()

    def keep() -> None:
        try:
            _unshare_pids()
            child = start()
            handle = os.pidfd_open(child.pid)
        except BaseException as failed:
            started.set_exception(failed)
            return
        started.set_result(child)
        try:
            ended = select.poll()
            ended.register(handle, select.POLLIN)
            ended.poll()
        finally:
            os.close(handle)

    threading.Thread(target=keep, daemon=True, name="keeps a child").start()
    return started.result()


def _unshare_pids() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWPID) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no PID namespace of its own: {os.strerror(number)}")
