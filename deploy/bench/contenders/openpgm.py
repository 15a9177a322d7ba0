"""OpenPGM, the reference implementation in C: a program of ours on its library, compiled when it is there."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from deploy.bench.contender import Job
from deploy.bench.place import LOCALHOST

_SOURCE = Path(__file__).resolve().parents[1] / "peers" / "openpgm.c"
_PACKAGE = "openpgm-5.3"
_REMEDY = "apt-get install gcc pkg-config libpgm-dev"
_LARGEST = 65_535  # octets of a message: the library's limit
_MOST_SQNS = 60_000  # of a window: the library's work under loss grows with it
_HEADS = 52  # octets of IP, UDP and PGM
_JUMBO_MTU = 8992  # octets; like 1496 such that the library's copies are aligned
_ETHERNET_MTU = 1496


@functools.cache
def _flags() -> tuple[str, ...] | str:
    """What the compiler is told, or why it cannot be."""
    missing = [tool for tool in ("gcc", "pkg-config") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found: {_REMEDY}"
    found = subprocess.run(["pkg-config", "--cflags", "--libs", _PACKAGE], capture_output=True, text=True, check=False)
    return tuple(found.stdout.split()) if found.returncode == 0 else f"{_PACKAGE} not found: {_REMEDY}"


@functools.cache
def _program() -> str:
    """The program, compiled once for this process. Raises `subprocess.CalledProcessError`."""
    folder = tempfile.mkdtemp(prefix="pgm-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = str(Path(folder) / "openpgm")
    subprocess.run(["gcc", "-O2", "-o", program, str(_SOURCE), *_flags()], check=True)
    return program


class OpenPgm:
    """OpenPGM, waiting by `poll`, with timers tuned by hand: back-off 2 ms, repeats after 10 ms.

    On the loopback interface it knows one address only, so both ends share it and NAKs may reach the wrong one.
    """

    name = "openpgm"
    title = "OpenPGM (C)"
    benchmarks = frozenset({"throughput", "repair"})
    is_ours = False
    spins = False
    timers: tuple[int, int] = (2, 10)  # ms: back-off, repeats

    def why_not(self, job: Job) -> str:
        """Why it cannot do this job here, or empty."""
        flags = _flags()
        if isinstance(flags, str):
            return flags
        return "" if job.size <= _LARGEST else f"its messages have at most {_LARGEST} octets"

    def command(self, end: str, job: Job) -> list[str]:
        """The program of one end."""
        own = job.sender if end in ("send", "ping") else job.receiver
        is_loopback = job.place.kind == "loopback"
        backoff, repeat = self.timers
        settings = {
            "port": job.place.port,
            "mtu": _JUMBO_MTU if job.size + _HEADS > _ETHERNET_MTU else _ETHERNET_MTU,
            "size": job.size,
            "rate": round(job.rate),
            "ms": round(job.seconds * 1000),
            "messages": job.messages,
            "quiet_ms": round(job.quiet_s * 1000),
            "window": max(64, min(_MOST_SQNS, job.window // job.size)),
            "rcvbuf": job.rcvbuf,
            "sndbuf": job.sndbuf,
            "loop": int(is_loopback),
            "spin": int(self.spins),
            "backoff": backoff,
            "repeat": repeat,
            "rdata": repeat,
        }
        texts = {
            "own": LOCALHOST if is_loopback else own.address,
            "group": job.place.group(0),
            "back": job.place.group(1),
        }
        return [_program(), end, *(f"{key}={value}" for key, value in (texts | settings).items())]
