"""Flags of the node's jobs in the documentation, held against the node's own help."""

from __future__ import annotations

import re
import subprocess
from functools import cache

from nodrop.cli.lab import NODE_JOBS
from nodrop.testbed.hosts.node import find_node_binary
from tests.unit.test_docs import INLINE, PAGES, blocks, lines, programs

FLAG = re.compile(r"--[a-z][a-z-]*")


@cache
def flags(*job: str) -> frozenset[str]:
    argv = [str(find_node_binary()), *job, "--help"]
    return frozenset(FLAG.findall(subprocess.run(argv, capture_output=True, text=True).stdout))


def test_documented_flags_of_the_nodes_jobs_exist() -> None:
    argvs = [
        argv
        for block in blocks()
        if block.language in ("console", "sh")
        for line in lines(block)
        for argv in programs(line)
    ]
    argvs += [f[1].split() for page in PAGES for f in INLINE.finditer(page.read_text())]
    wrong = []
    seen = 0
    for argv in argvs:
        if "nodrop" in argv[0] and len(argv) > 1 and argv[1] in NODE_JOBS:
            job = [NODE_JOBS[argv[1]][0], *(argv[2:3] if argv[1] == "trace" else ())]
            given = {found for word in argv for found in FLAG.findall(word) if word == found}
            seen += len(given)
            if strange := given - flags(*job) - {"--help"}:
                wrong.append(f"{argv}: {strange}")
    assert wrong == []
    assert seen > 20
