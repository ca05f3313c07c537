"""Manifest of a run: versions, hashes and facts that a figure depends on, recorded once."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import nodrop
from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import LabSource
from nodrop.hosts.binary import file_sha256, find_node_binary
from nodrop.hosts.seam import Json
from nodrop.measure.calibrated import stands_on
from nodrop.measure.plan import Plan
from nodrop.measure.preflight import Parts
from nodrop.protocol.events import AfPacketProof
from nodrop.protocol.events import Host as HostFacts


def manifest(
    experiment: Experiment,
    lab: LabSource,
    plan: Plan,
    parts: Parts,
    *,
    self_test: AfPacketProof,
    host: HostFacts,
) -> Json:
    node = find_node_binary()
    return {
        "nodrop": this_nodrop(),
        "node": {"path": str(node), "sha256": file_sha256(node)},
        "question": experiment.question,
        "metric": experiment.metric,
        "settings": [setting.text for setting in experiment.settings],
        "seed": plan.seed,
        "repetitions": plan.repetitions,
        "cells": [dict(cell.factors) for cell in plan.cells],
        "inputs": [parts.inputs(cell) for cell in plan.cells],
        "parting": None if plan.parting is None else asdict(plan.parting),
        "order": [trial.run_name for trial in plan.controller.beforehand()],
        "measure": experiment.measure.model_dump(),
        "search": None if experiment.search is None else experiment.search.model_dump(),
        "forecast": None if plan.forecast is None else plan.forecast.model_dump(),
        "host": host,
        "self_test": self_test,
        "calibration": stands_on(lab, (cell.setup["kind"] for cell in plan.cells), host),
        **parts.facts(),
    }


def this_nodrop() -> Json:
    return {
        "version": nodrop.__version__,
        "revision": _revision(),
        "python": platform.python_version(),
        "argv": sys.argv,
    }


def _revision() -> str | None:
    """Commit of the checkout we run from, with `-dirty` if it has changes; None if nodrop is
    installed, or git is not."""
    checkout = Path(nodrop.__file__).parents[2]
    if not (checkout / ".git").exists():
        return None
    try:
        # `describe --dirty` writes the checkout's index, even with GIT_OPTIONAL_LOCKS=0.
        commit = _git(checkout, "describe", "--always")
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(checkout: Path, *words: str) -> str:
    said = subprocess.run(
        ["git", "-C", str(checkout), *words],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
    )
    return said.stdout.strip()
