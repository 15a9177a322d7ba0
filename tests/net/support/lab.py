"""Hosts on one machine: network namespaces joined by veth pairs, made without privileges.

Each host is a namespace held open by a sleeping process inside one user namespace. Nothing needs root, nothing outlives
the test, and no traffic leaves the machine.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@functools.cache
def why_not() -> str:
    """Return why namespaces are not available here; empty if they are."""
    missing = [tool for tool in ("unshare", "nsenter", "ip", "nft", "ethtool") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}: apt-get install util-linux iproute2 nftables ethtool"
    script = "ip link add probe0 type veth peer name probe1 && nft add table inet probe"
    made = subprocess.run(["unshare", "-rUn", "sh", "-c", script], capture_output=True, text=True, check=False)
    return "" if made.returncode == 0 else f"no unprivileged network namespaces here: {made.stderr.strip()}"


needs_namespaces = pytest.mark.skipif(bool(why_not()), reason=why_not())


def enter_namespaces(pid: int, *kinds: str) -> None:
    """Move this thread into namespaces of a process, such as "net" of the holder of a host. Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in kinds:
        with Path(f"/proc/{pid}/ns/{kind}").open() as space:
            if libc.setns(space.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), f"setns into {kind} of process {pid}")


class Host:
    """One network namespace."""

    def __init__(self, name: str, holder: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.holder = holder

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` on this host."""
        return ["nsenter", "-t", str(self.holder.pid), "-U", "-n", "--preserve-credentials", *command]

    def run(self, *command: str) -> str:
        """Run a command on this host. Return its output."""
        done = subprocess.run(self.wrap(command), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{self.name}: {' '.join(command)}: {done.stderr}"
        return done.stdout

    def until(self, holds: Callable[[], object], patience_s: float = 60.0) -> None:
        """Wait until a condition holds on this host."""
        deadline = time.monotonic() + patience_s
        while not holds():
            assert time.monotonic() < deadline, f"{self.name}: it never came to that"
            time.sleep(0.02)

    def start(self, *command: str, **options: object) -> subprocess.Popen[bytes]:
        """Start a process on this host."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(self.wrap(command), env=environment, cwd=ROOT, **options)  # type: ignore[call-overload,no-any-return]

    def pgm(self, *arguments: str, **options: object) -> subprocess.Popen[bytes]:
        """Start a pgm command on this host."""
        return self.start(sys.executable, "-m", "deploy", *arguments, **options)

    def add_address(self, interface: str, address: str) -> None:
        """Add an address such as "10.0.0.2/24" or "fd00::2/64" to an interface, for immediate use."""
        unquestioned = ["nodad"] if ":" in address else []
        self.run("ip", "address", "add", address, "dev", interface, *unquestioned)


class Lab:
    """Hosts of one test."""

    def __init__(self) -> None:
        self._holders: list[subprocess.Popen[bytes]] = []
        self._root: Host | None = None

    def host(self, name: str) -> Host:
        """Make a host with nothing but loopback."""
        sleeper = ["sh", "-c", "echo up; exec cat"]  # which ends with this process, however that ends
        command = ["unshare", "-rUn", *sleeper] if self._root is None else self._root.wrap(["unshare", "-n", *sleeper])
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n", f"no namespace for {name}"
        self._holders.append(holder)
        host = Host(name, holder)
        self._root = self._root or host
        host.run("ip", "link", "set", "lo", "up")
        return host

    def join(self, one: Host, one_address: str, other: Host, other_address: str, mtu: int = 1500) -> tuple[str, str]:
        """Join two hosts by a veth pair. Return the interface names on either side. Addresses are IPv4 or IPv6."""
        names = (f"v{other.name}", f"v{one.name}")
        one.run("ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1], "netns", str(other.holder.pid))
        for host, name, address in ((one, names[0], one_address), (other, names[1], other_address)):
            host.run(
                "sysctl", "-qw", f"net.ipv6.conf.{name}.accept_dad=0"
            )  # its own link-local address is there at once
            host.add_address(name, address)
            host.run("ip", "link", "set", name, "mtu", str(mtu), "up")
            host.run("ip", "route", "add", "224.0.0.0/4", "dev", name, "metric", str(len(host.run("ip", "route"))))
            for key in ("all", name):
                host.run("sysctl", "-qw", f"net.ipv4.conf.{key}.rp_filter=0")
        return names

    def close(self) -> None:
        """End every namespace."""
        for holder in self._holders:
            holder.kill()
            holder.wait()
            for stream in (holder.stdin, holder.stdout):
                if stream is not None:
                    stream.close()


@contextmanager
def lab() -> Iterator[Lab]:
    """Make a lab for the length of a block."""
    made = Lab()
    try:
        yield made
    finally:
        made.close()
