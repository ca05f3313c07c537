"""SCTP of this host's kernel, which carries the messages of an MME."""

from __future__ import annotations

import socket


def sctp_lacking() -> str:
    """Why this kernel sets up no association, in words; "" if it does. Root's question loads the
    module where there is one."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError as error:
        return (
            f"this host's kernel has no SCTP ({error.strerror}): run `modprobe sctp` as root, or "
            "boot a kernel that has the module, as Debian's and Ubuntu's own do"
        )
    return ""
