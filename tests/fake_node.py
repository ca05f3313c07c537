"""A tiny node in Python that speaks the protocol, or breaks it in one chosen way.

`python tests/fake_node.py --behaviour WORD JOB --controlled` stands in for
`nodrop-node JOB --controlled`. The behaviours are what a controller must survive.
A job of a name that no node has (`ERRAND`) says what it likes: its events have no types.
With `--transcript FILE` it plays the node's part of a golden transcript (tests/protocol/).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BEHAVIOURS = (
    "good",
    "noise",  # text before hello, as a login banner would be
    "old-protocol",
    "silent",  # never says hello
    "refuse",  # an error event instead of ready
    "crash",  # dies at start, with last words on stderr
    "crash-early",  # dies before hello
    "no-result",  # exits 0 after stop without a result
    "babble",  # a line that is no event, after hello
    "unknown-event",
    "far",  # a quarter of a second away
    "deaf",  # ignores stop, end of file and SIGTERM
)
ERRAND = "errand"
FAR_S = 0.25
CLOCK_AHEAD_NS = 5_000_000_000
"""The fake's clock is this far ahead of the host's, to check a clock exchange by."""


def command(behaviour: str, job: str) -> list[str]:
    """The argv of a fake node."""
    return [sys.executable, __file__, "--behaviour", behaviour, job, "--controlled"]


def player(transcript: Path) -> list[str]:
    """The argv of a fake node that plays a transcript."""
    return [sys.executable, __file__, "--transcript", str(transcript)]


def play(transcript: Path) -> None:
    """Line by line; what the controller says otherwise than written ends it with status 99."""
    for line in map(json.loads, transcript.read_text().splitlines()):
        match line:
            case {"noise": words}:
                _write(words)
            case {"node": event}:
                _write(json.dumps(event))
            case {"controller": str(words)}:
                _must_hear(words, sys.stdin.readline().rstrip("\n"))
            case {"controller": message}:
                _must_hear(message, json.loads(sys.stdin.readline() or "null"))
            case {"controller_closes": _}:
                _must_hear("", sys.stdin.readline())
            case {"exit": status}:
                sys.exit(status)


def _must_hear(wanted: object, heard: object) -> None:
    if wanted != heard:
        sys.stderr.write(f"heard {heard!r}, not {wanted!r}\n")
        sys.exit(99)


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say(event: str, **fields: Any) -> None:
    _write(json.dumps({"type": event, **fields}))


def greet(behaviour: str, job: str) -> None:
    if behaviour == "crash-early":
        sys.exit("cannot load: bad magic")
    if behaviour == "silent":
        sys.stdin.read()
        sys.exit(1)
    if behaviour == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "noise":
        sys.stdout.write("Welcome to this machine.\n{not json}\n")
    protocol = 99 if behaviour == "old-protocol" else 2
    say("hello", protocol=protocol, version="fake", job=job, pid=os.getpid())


def on_spec(behaviour: str, spec: dict[str, Any]) -> None:
    if behaviour == "refuse":
        hint = "choose another"
        say("error", kind="no_such_interface", message="no interface nope0", hint=hint)
        sys.exit(1)
    if behaviour == "babble":
        sys.stdout.write("thread 'main' is confused\n")
    if behaviour == "unknown-event":
        say("surprise")
    say("ready", job=spec["job"])
    if spec["job"] in ("probe", "trace"):
        say("result", **{word: {"batches": 0, "ns": {}} for word in spec.get("what", ())})
        sys.exit(0)


def on_stop(behaviour: str, spec: dict[str, Any]) -> None:
    if behaviour == "deaf":
        return
    if behaviour != "no-result":
        say("result", job=spec["job"], packets=3)
    if not spec.get("again"):
        sys.exit(0)


def main(argv: Sequence[str]) -> None:
    if argv[0] == "--transcript":
        play(Path(argv[1]))
        return
    behaviour, job = argv[1], argv[2]
    greet(behaviour, job)
    spec: dict[str, Any] = {}
    for line in sys.stdin:
        message = json.loads(line)
        match message["type"]:
            case "spec":
                spec = message
                on_spec(behaviour, spec)
            case "clock":
                if behaviour == "far":
                    time.sleep(FAR_S)
                now = time.monotonic_ns() + CLOCK_AHEAD_NS
                say("clock", id=message["id"], mono_ns=now, real_ns=time.time_ns(), tai=None)
            case "start":
                if behaviour == "crash":
                    sys.stderr.write("panicked at 'ring is gone'\n")
                    sys.stderr.flush()
                    os.kill(os.getpid(), signal.SIGKILL)
                say("sample", packets=1)
                say("sample", packets=2)
            case "stop":
                on_stop(behaviour, spec)
    if behaviour == "deaf":
        signal.pause()
    sys.exit(1)  # end of file: the dead-man's switch


if __name__ == "__main__":
    main(sys.argv[1:])
