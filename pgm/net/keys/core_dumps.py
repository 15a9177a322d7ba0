"""Protection of the memory of a process with private keys from core dumps and from debuggers of its user."""

from __future__ import annotations

import ctypes
import os

PR_SET_DUMPABLE = 4  # of prctl(2)

_prctl = ctypes.CDLL(None, use_errno=True).prctl


def forbid_core_dumps() -> None:
    """Make this process undumpable: the kernel writes no core, and only root may read the memory. Raises `OSError`.

    Files of the process in `/proc` belong to root from then on. The setting ends with the process, or with an exec.
    """
    if _prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl")
