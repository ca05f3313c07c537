"""Attaches an XDP program to a port of this network namespace that drops frames.

A fault injector: prints `attached`, drops until its stdin ends. The programs are a few instructions
through bpf(2): no compiler is needed.

usage: drop_by_xdp.py PORT N skb|drv          one frame in N, at random
       drop_by_xdp.py PORT first:K skb|drv    exactly the first K frames
"""

import ctypes
import os
import platform
import socket
import struct
import sys

SYS_BPF = {"x86_64": 321, "aarch64": 280}
MAP_CREATE, MAP_UPDATE, PROG_LOAD, LINK_CREATE = 0, 2, 5, 28
MAP_TYPE_ARRAY, PROG_TYPE_XDP, ATTACH_XDP = 2, 6, 37
MODES = {"skb": 1 << 1, "drv": 1 << 2}


def bpf(command: int, attributes: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, 128)
    fd = libc.syscall(SYS_BPF[platform.machine()], command, buffer, 128)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(fd)


def instruction(code: int, registers: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    return struct.pack("<BBhi", code, registers, offset, immediate)


DROP = instruction(0xB7, immediate=1) + instruction(0x95)
PASS = instruction(0xB7, immediate=2) + instruction(0x95)


def one_in(number: int) -> bytes:
    return b"".join(
        [
            instruction(0x85, immediate=7),  # r0 = get_prandom_u32()
            instruction(0x94, immediate=number),  # w0 %= number
            instruction(0x55, offset=2),  # if r0 != 0 goto pass
            DROP,
            PASS,
        ]
    )


def first(number: int) -> bytes:
    """A counter in a map falls from `number` to 0, shared by the CPUs."""
    counter = bpf(MAP_CREATE, struct.pack("<IIII", MAP_TYPE_ARRAY, 4, 8, 1))
    key, left = ctypes.c_uint32(0), ctypes.c_int64(number)
    where = struct.pack("<IIQQQ", counter, 0, ctypes.addressof(key), ctypes.addressof(left), 0)
    bpf(MAP_UPDATE, where)
    return b"".join(
        [
            instruction(0x62, 0x0A, -4),  # *(u32 *)(r10 - 4) = 0
            instruction(0xBF, 0xA2),  # r2 = r10
            instruction(0x07, 0x02, immediate=-4),  # r2 += -4
            instruction(0x18, 0x11, immediate=counter),  # r1 = the map
            instruction(0x00),
            instruction(0x85, immediate=1),  # r0 = map_lookup_elem(r1, r2)
            instruction(0x15, 0x00, 6),  # if r0 == 0 goto pass
            instruction(0x79, 0x01, 0),  # r1 = *(s64 *)r0
            instruction(0xD5, 0x01, 4),  # if r1 <= 0 goto pass: it never runs round
            instruction(0xB7, 0x01, immediate=-1),  # r1 = -1
            instruction(0xDB, 0x10),  # lock *(s64 *)r0 += r1
            DROP,
            PASS,
        ]
    )


def main() -> None:
    port, which, mode = sys.argv[1], sys.argv[2], MODES[sys.argv[3]]
    kind, _, number = which.rpartition(":")
    code = first(int(number)) if kind == "first" else one_in(int(number))
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
