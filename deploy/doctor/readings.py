"""Readings of the kernel, from /proc, /sys, ioctl and sockets; None if this machine does not provide a reading."""

from __future__ import annotations

import array
import ctypes
import fcntl
import socket
import struct
from pathlib import Path

_SIOCGIFMTU = 0x8921
_SIOCGIFINDEX = 0x8933
_SIOCETHTOOL = 0x8946
_ETHTOOL_GRINGPARAM = 0x10
_ETHTOOL_GPAUSEPARAM = 0x12
_ETHTOOL_GGSO = 0x23
_ETHTOOL_GGRO = 0x2B
_IFREQ = struct.Struct("16si20x")
_IFREQ_POINTER = struct.Struct("16sP16x")
_BALLOON = "0x0005"  # device type of a memory balloon (virtio 1.2, 5.5)
_REPORTING = 5  # feature bit VIRTIO_BALLOON_F_PAGE_REPORTING
_TIME_ERROR = 5  # of adjtimex: the clock is not synchronised
_MAXERROR_AT = 3 * ctypes.sizeof(ctypes.c_long)  # in struct timex, behind modes, offset and freq
_SLASHES = str.maketrans("./", "/.")  # sysctl.d(5)
_TIMEX_OCTETS = 256  # larger than struct timex


def read(path: str | Path) -> str | None:
    """Return the text of a small kernel file."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def setting(name: str) -> str | None:
    """Return the text of a kernel setting. A slash in the name is a dot of a file's name, as `sysctl` takes it."""
    return read("/proc/sys/" + name.translate(_SLASHES))


def sysctl(name: str) -> int | None:
    """Return a kernel setting; of several numbers, the first."""
    text = setting(name)
    return None if not text else int(text.split()[0])


def interface_setting(interface: str, key: str) -> str:
    """Return the name of an IPv4 setting of an interface, as `sysctl` takes it: dots of the interface are slashes."""
    return f"net.ipv4.conf.{interface.replace('.', '/')}.{key}"


def interface_sysctl(interface: str, key: str) -> int:
    """Return an IPv4 setting in force on an interface: the larger of its own and that of `all`; 0 without a reading."""
    return max(sysctl(interface_setting(name, key)) or 0 for name in ("all", interface))


def _ioctl(request: int, octets: bytes) -> bytes | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            return fcntl.ioctl(sock, request, octets)
        except OSError:
            return None


def mtu_of(interface: str) -> int | None:
    """Return the octets of the largest packet of an interface, IP header included."""
    answer = _ioctl(_SIOCGIFMTU, _IFREQ.pack(interface.encode(), 0))
    return None if answer is None else int(_IFREQ.unpack(answer)[1])


def class_folder(interface: str) -> Path | None:
    """Return the interface's folder in /sys, unless the folder belongs to a namesake in another network namespace."""
    answer = _ioctl(_SIOCGIFINDEX, _IFREQ.pack(interface.encode(), 0))
    folder = Path("/sys/class/net") / interface
    if answer is None or read(folder / "ifindex") != str(_IFREQ.unpack(answer)[1]):
        return None
    return folder


def igmp_version_of(interface: str) -> int | None:
    """Return the version of IGMP in which the kernel joins groups on an interface."""
    return igmp_versions_in(read("/proc/net/igmp") or "").get(interface)


def igmp_versions_in(text: str) -> dict[str, int]:
    """Return the version of IGMP of each interface in the text of /proc/net/igmp. A long name touches its colon."""
    rows = (line.replace(":", " ").split() for line in text.splitlines() if line[:1].isdigit())
    return {row[1]: int(row[-1][1:]) for row in rows if len(row) >= 4 and row[-1][:1] == "V" and row[-1][1:].isdigit()}


def vendor() -> str:
    """Return the vendor of the machine in its firmware's words; empty if the firmware tells none."""
    return read("/sys/class/dmi/id/sys_vendor") or ""


def speed_of(interface: str) -> int | None:
    """Return the speed of the link in octets a second."""
    folder = class_folder(interface)
    # The file has Mbit/s. An unknown speed is -1, as a signed or unsigned number.
    text = None if folder is None else read(folder / "speed")
    return int(text) * 1_000_000 // 8 if text and 0 < int(text) < 1 << 31 else None


def _ethtool(interface: str, command: int, numbers: int) -> list[int] | None:
    values = array.array("I", [command, *[0] * numbers])
    address, _ = values.buffer_info()
    if _ioctl(_SIOCETHTOOL, _IFREQ_POINTER.pack(interface.encode(), address)) is None:
        return None
    return list(values)[1:]


def pause_of(interface: str) -> tuple[bool, bool] | None:
    """Return whether an interface obeys pause frames, and whether it sends them, like `ethtool -a`."""
    values = _ethtool(interface, _ETHTOOL_GPAUSEPARAM, 3)  # autoneg, rx, tx
    return None if values is None else (bool(values[1]), bool(values[2]))


def ring_of(interface: str) -> tuple[int, int] | None:
    """Return the current and the largest receive ring of an interface, in packets, like `ethtool -g`."""
    values = _ethtool(interface, _ETHTOOL_GRINGPARAM, 8)  # largest rx, mini, jumbo and tx ring, then the current sizes
    return None if values is None or not values[0] else (values[4], values[0])


def is_card(interface: str) -> bool:
    """Return whether an interface is a device of this machine, and no virtual one."""
    folder = class_folder(interface)
    return folder is not None and (folder / "device").exists()


def offloads_of(interface: str) -> dict[str, bool]:
    """Return whether the segmentation and receive offloads of the kernel are on, like `ethtool -k`; {} if unknown."""
    values = {
        name: _ethtool(interface, command, 1) for name, command in (("gso", _ETHTOOL_GGSO), ("gro", _ETHTOOL_GGRO))
    }
    return {name: bool(found[0]) for name, found in values.items() if found is not None}


def bridge_of(interface: str) -> Path | None:
    """Return the /sys folder of the bridge that an interface is, or belongs to."""
    folder = class_folder(interface)
    if folder is None:
        return None
    for bridge in (folder / "bridge", folder / "master" / "bridge"):
        if bridge.is_dir():
            return bridge
    return None


def udp_counter(name: str) -> int | None:
    """Return a UDP counter of this network namespace, such as `RcvbufErrors`."""
    rows = [line.split()[1:] for line in (read("/proc/net/snmp") or "").splitlines() if line.startswith("Udp:")]
    return int(dict(zip(*rows, strict=True))[name]) if len(rows) == 2 and name in rows[0] else None


def backlog_drops() -> int | None:
    """Return the packets dropped between interfaces and sockets since boot."""
    text = read("/proc/net/softnet_stat")
    return None if text is None else sum(int(line.split()[1], 16) for line in text.splitlines())


def memory() -> int | None:
    """Return the octets of memory that processes here may use."""
    text = read("/proc/meminfo")
    if text is None:
        return None
    total = int(text.split("MemTotal:")[1].split()[0]) * 1024
    limit = read("/sys/fs/cgroup/memory.max")
    return min(total, int(limit)) if limit and limit.isdigit() else total


def gives_memory_back(devices: Path = Path("/sys/bus/virtio/devices")) -> bool:
    """Return whether a memory balloon returns each page to the host as soon as the page is free."""
    for folder in devices.glob("*"):
        features = read(folder / "features") or ""
        if read(folder / "device") == _BALLOON and features[_REPORTING : _REPORTING + 1] == "1":
            return True
    return False


def clock_error_s() -> float | None:
    """Return by how much a synchronised clock may be wrong, s; None for a clock that nobody keeps, or no answer."""
    libc, timex = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(_TIMEX_OCTETS)
    state = libc.adjtimex(timex)  # modes 0: reads only
    if state < 0 or state == _TIME_ERROR:
        return None
    most_us: int = ctypes.c_long.from_buffer(timex, _MAXERROR_AT).value
    return most_us / 1e6


def is_clock_kept() -> bool | None:
    """Return whether the clock is synchronised, by NTP for instance."""
    libc = ctypes.CDLL(None, use_errno=True)
    state = libc.adjtimex(ctypes.create_string_buffer(_TIMEX_OCTETS))  # modes 0: reads only
    return None if state < 0 else state != _TIME_ERROR
