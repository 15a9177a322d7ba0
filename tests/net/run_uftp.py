"""A file to four receivers, by `pgm send` and by uftp, in one run: `python tests/net/run_uftp.py --size 200MB`.

Makes a network of a source, a switch and four receivers, each with a network namespace of its own and lines of 1500
octets, and writes to memory (/dev/shm), so that no disk is measured. Prints a row for each transfer: wall time from the start of the sending
command to its end, when all receivers have the file, CPU time of the sender and of a receiver, and whether every copy
is the same. uftp has no window: it is tried with each of `--uftp-rates`. Needs uftp (`apt-get install uftp`).
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import attrs  # noqa: E402

from pgm.units import format_octets, format_rate, parse_octets, parse_rate  # noqa: E402
from tests.net.files import make_file  # noqa: E402
from tests.net.lab import Host, lab, why_not  # noqa: E402

RECEIVERS = 4
_POLL_S = 0.02  # between two looks at the groups
_NET = "10.9.0"
_GROUP, _PRIVATE = "239.192.90.1", "239.192.90.2"
_MEMORY = Path("/dev/shm")  # memory, on every Linux
_TREE = f"""version = 1
name = "beside-uftp"
[streams.files]
data_port = 7500
rate = "8Gbit/s"
window = "1s"
flow = "acked"
parameters = {{ fin_quiet_ivl = "300ms", txw_bytes = "32MiB", ack_window = 4096 }}
[segments.lan]
group = "{_GROUP}"
interface = "{_NET}.0/24"
[nodes.source]
role = "source"
segment = "lan"
address = "{_NET}.1"
streams = ["files"]
[nodes."desk-*"]
role = "receiver"
segment = "lan"
count = {RECEIVERS}
addresses = "{_NET}.11-{_NET}.{10 + RECEIVERS}"
parents = ["source"]
"""


@attrs.frozen
class Result:
    """One transfer."""

    way: str
    seconds: float
    sender_cpu_s: float
    receiver_cpu_s: float  # of one, on average
    is_whole: bool
    said: str


@attrs.frozen
class Net:
    """The hosts that send and receive."""

    source: Host
    receivers: tuple[Host, ...]


@contextmanager
def network() -> Iterator[Net]:
    """A source and four receivers behind one switch."""
    with lab() as made:
        switch = made.host("switch")
        switch.run("ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        switch.run("ip", "link", "set", "br0", "up")
        hosts = [made.host("source"), *(made.host(f"desk-{number}") for number in range(1, RECEIVERS + 1))]
        for at, host in enumerate(hosts):
            address = f"{_NET}.{1 if at == 0 else 10 + at}"
            port, line = made.join(switch, f"10.9.{at + 1}.1/24", host, f"{address}/24")
            switch.run("ip", "link", "set", port, "master", "br0")
            host.run("ip", "route", "replace", "224.0.0.0/4", "dev", line)
        yield Net(hosts[0], tuple(hosts[1:]))


@attrs.define(eq=False)
class _Command:
    """A process in a namespace, and the CPU time that it took."""

    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, host: Host, arguments: Sequence[str], log: Path) -> _Command:
        with log.open("wb") as output:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            process = subprocess.Popen(host.wrap(list(arguments)), stdout=output, stderr=output, env=environment)
        return cls(process, log)

    def wait(self) -> float:
        """Wait for its end; returns its CPU time in seconds."""
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_utime + usage.ru_stime


def _joined(hosts: Sequence[Host], receivers: Sequence[_Command]) -> None:
    """Wait until each host is in the group."""
    for host, receiver in zip(hosts, receivers, strict=True):
        while _GROUP not in host.run("ip", "maddress", "show"):
            assert receiver.process.poll() is None, receiver.log.read_text()
            time.sleep(_POLL_S)


def by_pgm(net: Net, file: Path, folder: Path, packet: int) -> Result:
    """The file by `pgm send --file` and `pgm recv --into`."""
    tree = folder / "tree.toml"
    tree.write_text(_TREE.replace("ack_window", f'max_tpdu = "{packet}B", ack_window'))
    pgm = [sys.executable, "-m", "deploy"]
    receivers = []
    for number, host in enumerate(net.receivers, 1):
        options = ["--node", f"desk-{number}", "--into", str(folder / f"pgm-{number}"), "--json"]
        receivers.append(_Command.start(host, [*pgm, "recv", str(tree), *options], folder / f"recv-{number}.log"))
    _joined(net.receivers, receivers)
    options = ["--node", "source", "--file", str(file), "--receivers", str(RECEIVERS), "--json"]
    begun = time.monotonic()
    sender = _Command.start(net.source, [*pgm, "send", str(tree), *options], folder / "send.log")
    sender_cpu_s = sender.wait()
    seconds = time.monotonic() - begun
    cpu_s = [one.wait() for one in receivers]
    copies = [folder / f"pgm-{number}" / file.name for number in range(1, RECEIVERS + 1)]
    is_whole = sender.process.returncode == 0 and _are_same(file, copies)
    return Result("pgm", seconds, sender_cpu_s, sum(cpu_s) / RECEIVERS, is_whole, sender.log.read_text())


def by_uftp(net: Net, file: Path, folder: Path, rate: int) -> Result:
    """The file by uftp at a rate in octets a second."""
    receivers = []
    for number, host in enumerate(net.receivers, 1):
        into, scratch = folder / f"uftp-{number}", folder / f"uftp-scratch-{number}"
        into.mkdir()
        scratch.mkdir()
        options = ["-d", "-I", f"{_NET}.{10 + number}", "-M", _GROUP, "-B", str(4 << 20), "-U", f"0x0000000{number}"]
        command = ["uftpd", *options, "-D", str(into), "-T", str(scratch)]
        receivers.append(_Command.start(host, command, folder / f"uftpd-{number}.log"))
    _joined(net.receivers, receivers)
    options = ["-I", f"{_NET}.1", "-M", _GROUP, "-P", _PRIVATE, "-B", str(4 << 20), "-R", str(rate * 8 // 1000)]
    members = ",".join(f"0x0000000{number}" for number in range(1, RECEIVERS + 1))
    begun = time.monotonic()
    sender = _Command.start(net.source, ["uftp", *options, "-H", members, str(file)], folder / "uftp.log")
    sender_cpu_s = sender.wait()
    seconds = time.monotonic() - begun
    for one in receivers:
        one.process.terminate()
    cpu_s = [one.wait() for one in receivers]
    is_whole = _are_same(file, [folder / f"uftp-{number}" / file.name for number in range(1, RECEIVERS + 1)])
    return Result(
        f"uftp {format_rate(rate)}", seconds, sender_cpu_s, sum(cpu_s) / RECEIVERS, is_whole, sender.log.read_text()
    )


def _are_same(file: Path, copies: Sequence[Path]) -> bool:
    return all(copy.exists() and filecmp.cmp(file, copy, shallow=False) for copy in copies)


def show(result: Result, octets: int) -> str:
    """A row."""
    return (
        f"{result.way:16} {result.seconds:8.2f} s {octets / result.seconds / 1e6:8.1f} MB/s "
        f"{result.sender_cpu_s:8.2f} s {result.receiver_cpu_s:8.2f} s  {'yes' if result.is_whole else 'NO'}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=parse_octets, default="200MB", help="of the file (200MB)")
    parser.add_argument(
        "--packet", type=int, default=1472, help="octets of a packet of pgm (1472); uftp's own are 1300"
    )
    parser.add_argument(
        "--uftp-rates", type=parse_rate, nargs="*", default=[50_000_000, 100_000_000], help="(400Mbit/s 800Mbit/s)"
    )
    parser.add_argument("--log", action="store_true", help="print what the senders said")
    parser.add_argument("--json", action="store_true", help="a JSON object for each transfer")
    return parser.parse_args()


def main() -> int:
    """Transfer the file each way, one after the other."""
    options = _arguments()
    missing = why_not() or ("" if shutil.which("uftp") or not options.uftp_rates else "apt-get install uftp")
    if missing:
        print(f"{sys.argv[0]}: {missing}", file=sys.stderr)
        return 2
    print(f"{format_octets(options.size)} to {RECEIVERS} receivers")
    print(f"{'way':16} {'wall':>10} {'':13} {'CPU send':>10} {'CPU recv':>10}  whole", flush=True)
    with network() as net, tempfile.TemporaryDirectory(dir=_MEMORY, prefix="pgm-uftp-") as name:
        file = Path(name) / "file"
        make_file(file, options.size)
        failed = 0
        for rate in (None, *options.uftp_rates):
            with tempfile.TemporaryDirectory(dir=name) as at:
                folder = Path(at)
                result = by_pgm(net, file, folder, options.packet) if rate is None else by_uftp(net, file, folder, rate)
            failed += rate is None and not result.is_whole
            print(json.dumps(attrs.asdict(result)) if options.json else show(result, options.size), flush=True)
            if options.log or not result.is_whole:
                print(result.said[-4000:], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
