"""Description of the machine, without which no figure can be compared."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

_BUSY_LOAD = 0.5  # load average for each processor, above which the machine counts as busy


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def describe() -> dict[str, Any]:
    """Return the processor, kernel, interpreter, buffer limit and load average."""
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


def load_warning(machine: dict[str, Any]) -> str:
    """Return a warning about the reliability of figures from this machine, or ""."""
    if machine["load"] > _BUSY_LOAD * machine["cpus"]:
        return f"this machine is busy (load {machine['load']} on {machine['cpus']} processors), which lowers all figures, and lossless rates most of all"
    if machine["cpus"] < 2:
        return "sender and receiver share the only processor of this machine"
    return ""
