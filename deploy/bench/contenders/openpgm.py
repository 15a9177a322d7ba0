"""OpenPGM, the reference implementation in C: a program of this project, compiled if the library is installed."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from deploy.bench.contender import Contender, Job, Program
from deploy.bench.place import LOCALHOST

_SOURCE = Path(__file__).resolve().parents[1] / "peers" / "openpgm.c"
_PACKAGE = "openpgm-5.3"
_REMEDY = "apt-get install gcc pkg-config libpgm-dev"
_LARGEST = 65_535  # octets of a message: the library's limit
_MOST_SQNS = 60_000  # of a window; the library's work under loss grows with the window
_HEADS = 52  # octets of IP, UDP and PGM headers
# MTUs in octets, for which the library's copies are aligned.
_JUMBO_MTU = 8992
_ETHERNET_MTU = 1496


@functools.cache
def _flags() -> tuple[str, ...] | str:
    """Return the compiler's flags, or the reason why the program cannot be compiled."""
    missing = [tool for tool in ("gcc", "pkg-config") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found: {_REMEDY}"
    completed = subprocess.run(
        ["pkg-config", "--cflags", "--libs", _PACKAGE], capture_output=True, text=True, check=False
    )
    return tuple(completed.stdout.split()) if completed.returncode == 0 else f"{_PACKAGE} not found: {_REMEDY}"


@functools.cache
def _compiled() -> str:
    """Compile the program, once in this process, and return its path. Raises `subprocess.CalledProcessError`."""
    folder = tempfile.mkdtemp(prefix="pgm-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = str(Path(folder) / "openpgm")
    subprocess.run(["gcc", "-O2", "-o", program, str(_SOURCE), *_flags()], check=True)
    return program


def _why_not(job: Job) -> str:
    flags = _flags()
    if isinstance(flags, str):
        return flags
    return "" if job.size <= _LARGEST else f"its messages have at most {_LARGEST} octets"


def _program(back_off_ms: int, repeat_ms: int) -> Program:
    """Return OpenPGM's program with these timers: the NAK back-off, and the repetition of NAKs.

    The library knows one address of the loopback interface. Both ends share this address, and NAKs may reach the wrong
    end.
    """

    def command(end: str, job: Job, is_busy_poll: bool) -> list[str]:
        own = job.sender if end in ("send", "ping") else job.receiver
        is_loopback = job.place.kind == "loopback"
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
            "spin": int(is_busy_poll),
            "backoff": back_off_ms,
            "repeat": repeat_ms,
            "rdata": repeat_ms,
        }
        texts = {
            "own": LOCALHOST if is_loopback else own.address,
            "group": job.place.group(0),
            "back": job.place.group(1),
        }
        return [_compiled(), end, *(f"{key}={value}" for key, value in (texts | settings).items())]

    return command


_TUNED = _program(2, 10)  # timers chosen for this benchmark

OPENPGM = (
    Contender("openpgm", "OpenPGM (C)", ("throughput", "repair"), _TUNED, _why_not),
    # The examples of OpenPGM set these timers.
    Contender("openpgm-examples", "OpenPGM (C), timers of its examples", ("repair",), _program(50, 2000), _why_not),
    Contender("openpgm-busy-poll", "OpenPGM (C), busy-poll", ("latency",), _TUNED, _why_not, is_busy_poll=True),
    Contender("openpgm-blocking", "OpenPGM (C), blocking", ("latency",), _TUNED, _why_not),
)
