"""ZeroMQ over `epgm`, from Python. The packages and the interpreter are those of the distribution."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from deploy.bench.contender import Contender, Job
from deploy.bench.place import LOCALHOST

_PYTHON = "/usr/bin/python3"
_PROGRAM = Path(__file__).resolve().parents[1] / "peers" / "zeromq.py"


@functools.cache
def _why_not_here() -> str:
    if not Path(_PYTHON).exists():
        return f"{_PYTHON} not found"
    probe = "import zmq, sys; sys.exit(0 if zmq.has('pgm') else 3)"
    completed = subprocess.run([_PYTHON, "-c", probe], capture_output=True, check=False)
    if completed.returncode == 3:
        return "this libzmq was built without PGM"
    return "" if completed.returncode == 0 else "pyzmq not found: apt-get install python3-zmq"


def _why_not(_: Job) -> str:
    return _why_not_here()


def _command(end: str, job: Job, _is_busy_poll: bool) -> list[str]:
    own = {"own": LOCALHOST} if job.place.kind == "loopback" else {}
    return [_PYTHON, str(_PROGRAM), end, job.as_json(**own)]


ZEROMQ = (Contender("zeromq", "ZeroMQ, epgm", ("throughput", "latency", "repair", "messages"), _command, _why_not),)
