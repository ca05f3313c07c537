"""What a program that nodrop starts may do: no more capabilities than its work takes.

Everything here reads what others wrote: packets, traces, rules. A bug in it is then no root.
"""

from __future__ import annotations

SUT = ("NET_RAW",)
"""All that capturing takes; the same in every setup."""
GENERATOR = ("NET_RAW", "NET_ADMIN", "SYS_NICE", "IPC_LOCK", "DAC_READ_SEARCH")
"""Sockets and AF_XDP; a real-time class; memory that stays; a user's own trace."""
SAMPLER = ("SYS_PTRACE", "DAC_READ_SEARCH")
"""To read /proc of whoever is measured."""
OF_JOBS = {"replay": GENERATOR, "sink": SUT, "sample": SAMPLER}
"""The others look at the host once (`probe`), or are run as whoever asks."""
