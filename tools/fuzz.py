"""Random input for every decoder, each for a given time: `make fuzz SECONDS=600`.

Python's by the property tests (hypothesis) with 500 examples a round, the node's by cargo-fuzz,
which needs a nightly toolchain; without it by mutations of their corpus, blindly. Exit code 1 if
anything fell.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ("tests/unit", "tests/slow", "tests/known_answers", "tests/protocol")


def property_tests() -> list[Path]:
    """Files with a test that hypothesis feeds."""
    files = sorted(path for folder in TESTS for path in (ROOT / folder).rglob("test_*.py"))
    return [path for path in files if re.search(r"^@given\(", path.read_text(), re.MULTILINE)]


def fuzz_python(path: Path, seconds: float) -> bool:
    """Rounds with a fresh seed each; a round that has begun is finished."""
    end = time.monotonic() + seconds
    rounds = 0
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "hypothesis", "--timeout=0"]
    while rounds == 0 or time.monotonic() < end:
        rounds += 1
        done = subprocess.run(
            [*argv, "--hypothesis-profile=fuzz", str(path)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            print(done.stdout[-6000:])
            return False
    print(f"{path.relative_to(ROOT)}: nothing in {rounds} rounds", flush=True)
    return True


def fuzz_rust(target: str, seconds: float) -> bool:
    argv = ["cargo", "+nightly", "fuzz", "run", target, f"fuzz/corpus/{target}"]
    done = subprocess.run(
        [*argv, "--", f"-max_total_time={seconds:.0f}"], cwd=ROOT, check=False
    )  # fmt: skip
    return done.returncode == 0


def fuzz_blindly(seconds: float) -> bool:
    """All targets, each for so long, by a driver that does not see which code an input reaches."""
    argv = ["cargo", "test", "--release", "--locked", "--package", "nodrop-node"]
    argv += ["--test", "fuzz_corpus", "so_long", "--", "--nocapture"]
    env = {**os.environ, "NODROP_FUZZ_SECONDS": f"{seconds:.0f}"}
    return subprocess.run(argv, cwd=ROOT, env=env, check=False).returncode == 0


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    fell = [str(path) for path in property_tests() if not fuzz_python(path, seconds)]
    targets = sorted(path.stem for path in (ROOT / "fuzz/fuzz_targets").glob("*.rs"))
    if shutil.which("cargo-fuzz"):
        fell += [target for target in targets if not fuzz_rust(target, seconds)]
    elif not fuzz_blindly(seconds):
        fell += ["crates/node/tests/fuzz_corpus.rs"]
    print(f"fell: {', '.join(fell)}" if fell else "nothing fell")
    return 1 if fell else 0


if __name__ == "__main__":
    sys.exit(main())
