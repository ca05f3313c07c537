"""In a network namespace of its own: a veth, all of its settings in one line, and settings of it
that end by kill -9 after so many writes. Lines of stdin: empty, or `after knob=value …`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from nodrop.errors import NodropError
from nodrop.testbed.labs.port_settings import Device, Piece
from nodrop.tune.applying import parse, plan
from nodrop.tune.kept import apply_and_keep
from nodrop.tune.knobs import KNOBS
from nodrop.tune.namespaces import see_own_ports

PORT = "eth1"


class Dying(Device):
    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def write(self, piece: Piece, raw: str) -> None:
        if not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(piece, raw)
        self.after -= 1


def show() -> None:
    live = Device()
    state = {str(one): live.read(one) for one in live.pieces(PORT)}
    sys.stdout.write(json.dumps(state) + "\n")
    sys.stdout.flush()


def main() -> None:
    queues = ["numrxqueues", "2", "numtxqueues", "2"]
    made = ["ip", "link", "add", PORT, *queues, "type", "veth", "peer", "name", "eth2", *queues]
    subprocess.run(made, check=True)
    for port in (PORT, "eth2"):
        subprocess.run(["ip", "link", "set", port, "up"], check=True)
    see_own_ports()
    show()
    for line in sys.stdin:
        if words := line.split():
            child = os.fork()
            if child == 0:
                device = Dying(int(words[0]))
                try:
                    apply_and_keep(device, plan(device, parse(words[1:], KNOBS), [PORT]))
                except NodropError as error:
                    sys.stderr.write(f"{error}\n")
                os._exit(0)
            os.waitpid(child, 0)
        show()


if __name__ == "__main__":
    main()
