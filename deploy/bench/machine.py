"""What this machine is: figures mean nothing without it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

_BUSY_LOAD = 0.5  # processes a processor that were running before the benchmark began


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def describe() -> dict[str, Any]:
    """Processor, kernel, interpreter, buffers, and how busy it was."""
    return {
        "cpu": _model(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "trio": version("trio"),
        "rmem_max": int(Path("/proc/sys/net/core/rmem_max").read_text()),
        "load": round(os.getloadavg()[0], 2),
    }


def complaint(machine: dict[str, Any]) -> str:
    """Why its figures should not be believed too far, or empty."""
    if machine["load"] > _BUSY_LOAD * machine["cpus"]:
        return f"this machine is busy with other things (load {machine['load']} on {machine['cpus']} processors): these figures are lower than they could be, and lossless rates most of all"
    if machine["cpus"] < 2:
        return "this machine has one processor: sender and receiver share it"
    return ""
