"""Facts of this machine: versions, kernel, memory, interfaces, and the kernel's settings and counters of networks."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from deploy.doctor import readings
from deploy.terminal.version import VERSION
from pgm.net.sockets.interfaces import interface_addresses

_DISTRIBUTION = "pgm-repair-network"
_MOST_INTERFACES = 64
# Settings that decide what becomes of datagrams, of multicast and of timers.
SYSCTLS = (
    "kernel.sched_rt_runtime_us",
    "net.core.busy_poll",
    "net.core.netdev_budget",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.conf.all.force_igmp_version",
    "net.ipv4.conf.all.mc_forwarding",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.igmp_max_memberships",
    "net.ipv4.igmp_max_msf",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.ipv6.conf.all.force_mld_version",
    "net.ipv6.mld_max_msf",
    "vm.overcommit_memory",
    "vm.swappiness",
)
_INTERFACE_SYSCTLS = ("rp_filter", "force_igmp_version", "mc_forwarding")
_KERNEL_FILES = ("/proc/net/snmp", "/proc/net/softnet_stat", "/proc/net/igmp", "/proc/net/udp", "/proc/net/dev")
_MOST_KERNEL_FILE = 65_536  # octets of one of these


def host_facts() -> dict[str, Any]:
    """Return the facts of this machine as plain values. A fact that the machine does not tell is None or left out."""
    addresses = dict(list(interface_addresses().items())[:_MOST_INTERFACES])
    own = (readings.interface_setting(name, key) for name in addresses for key in _INTERFACE_SYSCTLS)
    found = {name: readings.setting(name) for name in (*SYSCTLS, *own)}
    return {
        "host": platform.node(),
        "time_s": round(time.time(), 3),
        "pgm": VERSION,
        "python": sys.version.split()[0],
        "packages": _packages(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "distribution": _distribution(),
        "user": os.geteuid(),
        "processors": os.cpu_count(),
        "usable_processors": len(os.sched_getaffinity(0)),
        "load": list(os.getloadavg()),
        "memory_bytes": readings.memory(),
        "clock_error_s": readings.clock_error_s(),
        "clock_source": readings.read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "uptime": readings.read("/proc/uptime"),
        "interfaces": [_interface(name, own) for name, own in addresses.items()],
        "sysctl": {name: text for name, text in found.items() if text is not None},
        "udp": {name: readings.udp_counter(name) for name in ("InDatagrams", "InErrors", "RcvbufErrors", "SndbufErrors")},
        "backlog_drops": readings.backlog_drops(),
        # The values of variables may be secrets or their paths, so only the names are told.
        "variables": sorted(name for name in os.environ if name.startswith("PGM_")),
    }  # fmt: skip


def kernel_files() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of the kernel's tables of networks."""
    for path in _KERNEL_FILES:
        text = readings.read(path)
        if text is not None:
            yield Path(path).name, text[:_MOST_KERNEL_FILE] + "\n"


def _packages() -> dict[str, str]:
    """Return the versions of the packages that this distribution may use and that are installed."""
    try:
        names = {
            line.split(";")[0].split("[")[0].rstrip(" <>=!~.0123456789,()") for line in requires(_DISTRIBUTION) or ()
        }
    except PackageNotFoundError:
        return {}
    found: dict[str, str] = {}
    for name in sorted(names):
        try:
            found[name] = version(name)
        except (PackageNotFoundError, ValueError):
            continue
    return found


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _interface(name: str, addresses: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "addresses": addresses,
        "mtu": readings.mtu_of(name),
        "octets_per_s": readings.speed_of(name),
        "ring": readings.ring_of(name),
    }
