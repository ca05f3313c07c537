"""A capture program that nobody has packaged: one TOML file with its lines of Python in it. It
runs wherever python3 does, in the image of Suricata too."""

from __future__ import annotations

from pathlib import Path

DESCRIPTION = '''
name = "twenty-lines"
argv = ["python3", "-u", "{work}/capture.py", "{interface}"]
[files]
"capture.py" = """
import signal, socket, struct, sys
port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
port.bind((sys.argv[1], 3))
port.settimeout(0.05)
ending, wanted = [], []
signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
signal.signal(signal.SIGUSR1, lambda *_: wanted.append(1))
came = lost = got = 0
while True:
    try:
        port.recv(65535)
        got += 1
    except TimeoutError:
        if ending or wanted:
            more = struct.unpack("II", port.getsockopt(263, 6, 8))
            came, lost, wanted[:] = came + more[0], lost + more[1], []
            print("came=%d lost=%d got=%d" % (came, lost, got))
        if ending:
            break
"""
[ready]
ring = false
[stop]
signal = "TERM"
settle_s = 1
[threads]
worker = "^python3"
[exit]
from = "stdout"
regex = "came=(?P<came>[0-9]+) lost=(?P<lost>[0-9]+) got=(?P<got>[0-9]+)"
take = "last"
required = ["came", "lost", "got"]
[live]
from = "stdout"
signal = "USR1"
regex = "came=(?P<came>[0-9]+) lost=(?P<lost>[0-9]+) got=(?P<got>[0-9]+)"
[books]
captured = "came"
dropped_ring_full = "lost"
decoded = "got"
[identities]
"none is left in its queue" = "came - lost == got"
'''
FILE = "twenty-lines.toml"


def write(folder: Path) -> Path:
    path = folder / FILE
    path.write_text(DESCRIPTION)
    return path
