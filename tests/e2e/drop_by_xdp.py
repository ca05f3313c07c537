"""Attaches an XDP program to a port of this network namespace that drops one frame in N at random.

A fault injector for the tests: prints `attached`, drops until its stdin ends. The program is six
instructions through bpf(2), so that no compiler is needed.   usage: drop_by_xdp.py PORT N skb|drv
"""

import ctypes
import os
import socket
import struct
import sys

SYS_BPF = 321  # x86_64
PROG_LOAD, LINK_CREATE = 5, 28
PROG_TYPE_XDP, ATTACH_XDP = 6, 37
MODES = {"skb": 1 << 1, "drv": 1 << 2}


def bpf(command: int, attributes: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, 128)
    fd = libc.syscall(SYS_BPF, command, buffer, 128)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(fd)


def instruction(code: int, registers: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    return struct.pack("<BBhi", code, registers, offset, immediate)


def main() -> None:
    port, one_in, mode = sys.argv[1], int(sys.argv[2]), MODES[sys.argv[3]]
    code = b"".join(
        [
            instruction(0x85, immediate=7),  # r0 = get_prandom_u32()
            instruction(0x94, immediate=one_in),  # w0 %= one_in
            instruction(0x55, offset=2),  # if r0 != 0 goto +2
            instruction(0xB7, immediate=1),  # r0 = XDP_DROP
            instruction(0x95),
            instruction(0xB7, immediate=2),  # r0 = XDP_PASS
            instruction(0x95),
        ]
    )
    text, licence = (
        ctypes.create_string_buffer(code, len(code)),
        ctypes.create_string_buffer(b"GPL"),
    )
    program = bpf(
        PROG_LOAD,
        struct.pack(
            "<IIQQ",
            PROG_TYPE_XDP,
            len(code) // 8,
            ctypes.addressof(text),
            ctypes.addressof(licence),
        ),
    )
    link = bpf(
        LINK_CREATE, struct.pack("<IIII", program, socket.if_nametoindex(port), ATTACH_XDP, mode)
    )
    sys.stdout.write("attached\n")
    sys.stdout.flush()
    sys.stdin.read()
    os.close(link)


if __name__ == "__main__":
    main()
