"""Standalone cluster of two workers, started from the pyspark package itself.

Its executors have a Python without pgm.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import pyspark

from tests.net.support.places import Place

_HOST = "127.0.0.1"
_PATIENCE_S = 90.0
_POLL_S = 0.1


@attrs.frozen
class Cluster:
    """Address of the master, Python of the executors, and processes of the workers."""

    master: str
    python: Path
    workers: tuple[int, ...]

    def executors(self) -> list[int]:
        """Return the process ids of the running executors."""
        return [
            pid
            for pid, parent, command in processes()
            if parent in self.workers and "CoarseGrainedExecutorBackend" in command
        ]


def processes() -> Iterator[tuple[int, int, str]]:
    """Yield (pid, parent, command line) of all processes."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            yield int(entry.name), parent, command


def is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    """Return whether a process is another one, or descends from it."""
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def bare_python(folder: Path) -> Path:
    """Make an interpreter with the packages of this one, without pgm."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "others.pth").write_text(str(Path(pyspark.__file__).parents[1]) + "\n")
    python = folder / "bin" / "python"
    lacks = subprocess.run(
        [str(python), "-c", "import pyarrow, pgm"], env={}, cwd=folder, capture_output=True, check=False
    )
    assert b"No module named 'pgm'" in lacks.stderr, lacks
    return python


def free_port() -> int:
    """Return a TCP port that no other test and no other process uses."""
    while True:
        port = Place.new().port
        with suppress(OSError), socket.create_server((_HOST, port)):
            return port


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Run a master and two workers of one core each, for the length of a block."""
    port = free_port()
    home = Path(pyspark.__file__).parent
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(role: str, *words: str) -> None:
        with (folder / f"{role}-{len(started)}.log").open("wb") as log:
            name = f"org.apache.spark.deploy.{role}.{role.capitalize()}"
            command = [str(home / "bin" / "spark-class"), name, "--host", _HOST, "--webui-port", "0", *words]
            started.append(
                subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    try:
        start("master", "--port", str(port))
        for number in (1, 2):
            start(
                "worker", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"),
                f"spark://{_HOST}:{port}",
            )  # fmt: skip
        python = bare_python(folder / "bare")
        until = time.monotonic() + _PATIENCE_S
        while (folder / "master-0.log").read_text().count("Registering worker") < 2:
            assert time.monotonic() < until, (folder / "master-0.log").read_text()
            time.sleep(_POLL_S)
        yield Cluster(f"spark://{_HOST}:{port}", python, tuple(one.pid for one in started[1:]))
    finally:
        for one in reversed(started):
            one.terminate()
        for one in started:
            one.wait()


SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.driver.bindAddress": _HOST,
    "spark.driver.host": _HOST,
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
