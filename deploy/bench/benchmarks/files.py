"""`pgm bench files`: a file to several receivers at once, by pgm and by uftp.

Both run on the same network in the same run. Files are written to memory, so that no disk is measured. With TMPDIR set,
files are written below TMPDIR. The measured time is the run time of the sending command. The command ends when all
receivers have the file. Every copy is compared with the original.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from deploy.bench.contenders.files import GROUP, FileContender, FileJob, select_file_contenders
from deploy.bench.lan import Lan, has_joined, open_lan
from deploy.bench.settings import BenchSettings, Row
from deploy.bench.trial import environment
from pgm.errors import ProcessError
from pgm.units import MIB, format_rate

_MEMORY = Path("/dev/shm")  # present on every Linux system
_POLL_S = 0.01  # between two checks of a process or a group
_START_S = 60.0  # several interpreters that start at once on a small machine
_SLOWEST = 1_000_000  # octets a second; a slower transfer counts as failed
_SPARE_S = 120.0  # further time for start, requests and end
_END_S = 15.0  # for receivers, after the end of the sender
_TAIL_OCTETS = 2000  # of a process's output, kept for a failure message
_CHUNK = 16 * MIB


@attrs.frozen
class Transfer:
    """Result of one transfer."""

    seconds: float
    sender_cpu_s: float
    receiver_cpu_s: float  # mean of all receivers
    flaw: str  # empty if every copy is complete


class Process:
    """Process on a host, with its output in a file and its CPU time."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(),
                start_new_session=True,
            )  # fmt: skip
        self.pid = self._popen.pid
        self.code: int | None = None
        self.cpu_s = 0.0

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        if self.code is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self._set_exit(status, usage)
        return self.code

    def _set_exit(self, status: int, usage: resource.struct_rusage) -> None:
        self.code = self._popen.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = usage.ru_utime + usage.ru_stime

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    async def wait(self, patience_s: float) -> bool:
        """Wait for the end of the process; return whether it ended in time."""
        deadline = time.monotonic() + patience_s
        while self.poll() is None:
            if time.monotonic() > deadline:
                return False
            await trio.sleep(_POLL_S)
        return True

    def end(self) -> None:
        """Kill the process if it still runs, and collect its exit code."""
        self.signal(signal.SIGKILL)
        if self.code is None:
            _, status, usage = os.wait4(self.pid, 0)
            self._set_exit(status, usage)

    def output_tail(self) -> str:
        """Return the last part of the process's output."""
        return self.log.read_bytes()[-_TAIL_OCTETS:].decode(errors="replace")


async def files(settings: BenchSettings) -> list[Row]:
    """Measure each file size, and return a row for each size and contender.

    A contender without flow control uses the best of `uftp_rates`. Raises `ProcessError`, `UsageError`.
    """
    contenders = select_file_contenders(settings.contenders)
    rows: list[Row] = []
    with open_lan(settings.files.receivers) as lan:
        for size in settings.files.sizes:
            with _folder(size, settings) as folder:
                rows += await _measure_size(contenders, lan, folder, size, settings)
    return rows


@contextmanager
def _folder(size: int, settings: BenchSettings) -> Iterator[Path]:
    """Make a folder for the file and all copies, for a block. Raises `ProcessError` if the disk has too little room."""
    at = settings.folder if "TMPDIR" in os.environ or not _MEMORY.is_dir() else _MEMORY
    needed, free = size * (settings.files.receivers + 1), shutil.disk_usage(at).free
    if needed > free:
        raise ProcessError(
            f"the file and its copies take {needed:,} octets, and {at} has {free:,}",
            remedy="lower --file-size, or set TMPDIR to another folder",
        )
    with tempfile.TemporaryDirectory(dir=at, prefix="pgm-bench-") as name:
        yield Path(name)


async def _measure_size(
    contenders: Sequence[FileContender], lan: Lan, folder: Path, size: int, settings: BenchSettings
) -> list[Row]:
    file = folder / "file"
    settings.say(f"writing a file of {size:,} octets")
    await trio.to_thread.run_sync(make_file, file, size)
    # The first access to memory of a virtual machine is slow. The first contender alone would pay for that access.
    await trio.to_thread.run_sync(_touch, folder / "touched", size * len(lan.receivers))
    available = [contender for contender in contenders if not contender.why_not()]
    run_once = partial(_run_once, lan=lan, file=file, settings=settings)
    rates = {contender.name: await _best_rate(contender, run_once, settings) for contender in available}
    results: dict[str, list[Transfer]] = {contender.name: [] for contender in available}
    for _ in range(settings.runs):
        for contender in available:
            results[contender.name].append(await run_once(contender, rates[contender.name]))
    rows = []
    for contender in contenders:
        row = {"benchmark": "files", "contender": contender.name, "title": contender.title, "size": size}
        row["receivers"] = len(lan.receivers)
        if contender.why_not():
            row["why_not"] = contender.why_not()
        else:
            row |= figures(results[contender.name], size, rates[contender.name])
        settings.emit(row)
        rows.append(row)
    return rows


async def _best_rate(
    contender: FileContender, run_once: Callable[[FileContender, int], Awaitable[Transfer]], settings: BenchSettings
) -> int:
    """Return the rate with the shortest transfer, or 0 if the contender needs none."""
    if not contender.needs_rate:
        return 0
    if len(settings.files.uftp_rates) == 1:
        return settings.files.uftp_rates[0]
    seconds_of_rate: dict[int, float] = {}
    for rate in settings.files.uftp_rates:
        transfer = await run_once(contender, rate)
        seconds_of_rate[rate] = transfer.seconds if not transfer.flaw else float("inf")
    return min(seconds_of_rate, key=lambda rate: seconds_of_rate[rate])


def figures(results: Sequence[Transfer], size: int, rate: int) -> Row:
    """Return the figures of a contender: medians of complete transfers, and failures."""
    complete = [transfer for transfer in results if not transfer.flaw]
    row: Row = {"runs": len(results), "failed": len(results) - len(complete)}
    if rate:
        row["rate"] = format_rate(rate)
    if len(complete) < len(results):
        row["limited_by"] = next(transfer.flaw for transfer in results if transfer.flaw)
    if complete:
        seconds = statistics.median(transfer.seconds for transfer in complete)
        row["seconds"] = round(seconds, 3)
        row["runs_seconds"] = [round(transfer.seconds, 3) for transfer in complete]
        row["mb_per_s"] = round(size / seconds / 1e6, 1)
        row["sender_cpu_s"] = round(statistics.median(transfer.sender_cpu_s for transfer in complete), 3)
        row["receiver_cpu_s"] = round(statistics.median(transfer.receiver_cpu_s for transfer in complete), 3)
    return row


async def _run_once(contender: FileContender, rate: int, *, lan: Lan, file: Path, settings: BenchSettings) -> Transfer:
    """Run one transfer into new folders."""
    with tempfile.TemporaryDirectory(dir=file.parent) as name, ExitStack() as stack:
        scratch = Path(name)
        folders = tuple(scratch / f"into-{number}" for number in range(len(lan.receivers)))
        for folder in folders:
            folder.mkdir()
        job = FileJob(file, folders, scratch, settings.rcvbuf, rate)
        contender.prepare(job)
        result = await _transfer(contender, job, lan, stack)
    at = f" at {format_rate(rate)}" if rate else ""
    cpu_s = result.sender_cpu_s + len(folders) * result.receiver_cpu_s
    settings.say(f"{contender.title}{at}: {result.flaw or f'{result.seconds:.2f} s'}, {cpu_s:.1f} s of CPU")
    return result


async def _transfer(contender: FileContender, job: FileJob, lan: Lan, stack: ExitStack) -> Transfer:
    def start(host: int, command: Sequence[str], name: str) -> Process:
        process = Process(lan.wrap(host, command), job.scratch / f"{name}.log")
        stack.callback(process.end)
        return process

    receivers = [
        start(host, contender.receiver(job, number), f"receiver-{number}") for number, host in enumerate(lan.receivers)
    ]
    await _until_joined(contender, receivers)
    began = time.monotonic()
    sender = start(lan.source, contender.sender(job), "sender")
    is_over = await sender.wait(_SPARE_S + job.file.stat().st_size / _SLOWEST)
    seconds = time.monotonic() - began
    for receiver in receivers:
        if contender.stays:
            receiver.signal(signal.SIGTERM)
    ends_in_time = [await receiver.wait(_END_S) for receiver in receivers]
    flaw = ""
    if not is_over or sender.code:
        flaw = f"the sender {'did not end' if not is_over else f'ended with {sender.code}'}: {sender.output_tail()}"
    elif not await trio.to_thread.run_sync(are_same, job.file, list(map(job.copy_of, range(len(receivers))))):
        flaw = f"a copy is incomplete: {sender.output_tail()}"
    elif not all(ends_in_time):
        flaw = "a receiver did not end"
    for process in (sender, *receivers):
        process.end()
    return Transfer(seconds, sender.cpu_s, statistics.mean(receiver.cpu_s for receiver in receivers), flaw)


async def _until_joined(contender: FileContender, receivers: Sequence[Process]) -> None:
    """Wait until each receiver has joined the group. Raises `ProcessError`."""
    deadline = time.monotonic() + _START_S
    for receiver in receivers:
        while not has_joined(receiver.pid, GROUP):
            if receiver.poll() is not None or time.monotonic() > deadline:
                raise ProcessError(f"a receiver of {contender.name} did not start: {receiver.output_tail()}")
            await trio.sleep(_POLL_S)


def make_file(path: Path, octets: int) -> None:
    """Write a file of random octets, which cannot be compressed."""
    with path.open("wb") as file:
        for at in range(0, octets, _CHUNK):
            file.write(os.urandom(min(_CHUNK, octets - at)))


def _touch(path: Path, octets: int) -> None:
    """Write `octets` zero octets to a file and remove the file."""
    chunk = bytes(_CHUNK)
    with path.open("wb", buffering=0) as file:
        for _ in range(0, octets, _CHUNK):
            file.write(chunk)
    path.unlink()


def are_same(file: Path, copies: Sequence[Path]) -> bool:
    """Return whether all copies equal the file."""
    return all(copy.is_file() and _is_same(file, copy) for copy in copies)


def _is_same(file: Path, copy: Path) -> bool:
    if file.stat().st_size != copy.stat().st_size:
        return False
    with file.open("rb") as first, copy.open("rb") as second:
        while chunk := first.read(_CHUNK):
            if second.read(len(chunk)) != chunk:
                return False
    return True
