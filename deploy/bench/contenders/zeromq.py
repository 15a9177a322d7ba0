"""ZeroMQ over `epgm`, from the distribution's packages and run by the distribution's interpreter."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from deploy.bench.contender import Job
from deploy.bench.place import LOCALHOST

_PYTHON = "/usr/bin/python3"
_PROGRAM = Path(__file__).resolve().parents[1] / "peers" / "zeromq.py"


@functools.cache
def _why_not() -> str:
    if not Path(_PYTHON).exists():
        return f"{_PYTHON} not found"
    probe = "import zmq, sys; sys.exit(0 if zmq.has('pgm') else 3)"
    done = subprocess.run([_PYTHON, "-c", probe], capture_output=True, check=False)
    if done.returncode == 3:
        return "this libzmq was built without PGM"
    return "" if done.returncode == 0 else "pyzmq not found: apt-get install python3-zmq"


class ZeroMq:
    """A PUB and a SUB socket on `epgm`, from Python."""

    name = "zeromq"
    title = "ZeroMQ, epgm"
    benchmarks = frozenset({"throughput", "latency", "repair", "messages"})
    is_ours = False
    spins = False

    def why_not(self, job: Job) -> str:
        """Why it cannot do this job here, or empty."""
        return _why_not()

    def command(self, end: str, job: Job) -> list[str]:
        """The program of one end."""
        only = {"own": LOCALHOST} if job.place.kind == "loopback" else {}
        return [_PYTHON, str(_PROGRAM), end, job.as_json(**only)]
