"""Checks of the machine: kernel limits, memory, clocks, processors and packages."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path

from deploy.doctor import readings
from deploy.doctor.findings import HostFinding, advice, fault, judged, ok
from deploy.keys.inspection import SOON_DAYS
from deploy.render.systemd import memory_of
from pgm.errors import ProcessError, TransportError, UsageError
from pgm.net.control.control_socket import control_path
from pgm.net.control.status_socket import runtime_dir
from pgm.net.keys.key_directory import place_of_plan
from pgm.net.keys.start_check import own_keys, today
from pgm.net.sockets.open import SO_RCVBUFFORCE, SO_SNDBUFFORCE
from pgm.net.sockets.raw_ip import PROTOCOL, open_raw
from pgm.net.sockets.trusted_folders import check_folder
from pgm.parameters import Parameters
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import MIB, MILLISECOND, SECOND, format_duration, format_octets

HERE = "this machine"
# Other processes may keep a node from its socket for this long. A smaller buffer loses packets now and then.
_AWAY_NS = 10 * MILLISECOND
_DESCRIPTORS = 64  # of a node without its links: standard streams, the driver, answers and files
_DESCRIPTORS_PER_LINK = 4
_LONGEST_PATH = 107  # octets of a Unix socket's path
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Each reading of these clocks is a slow system call.
_SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "jiffies", "refined-jiffies"})


def check_machine(plans: Sequence[NodePlan]) -> Iterator[HostFinding]:
    """Run all checks for these nodes, or for default parameters without any node."""
    limits = [plan.parameters for plan in plans] or [Parameters()]
    yield from _buffers(limits)
    yield from _kernel(plans, limits)
    yield _descriptors(plans)
    if plans:
        yield from _memory(plans)
        yield free_memory(plans, is_given_back=readings.gives_memory_back())
        yield from _folders(plans)
        yield from _keys(plans)
        if any(stream.readers is not None for plan in plans for stream in plan.streams):
            yield aes_instructions(readings.read("/proc/cpuinfo") or "")
        ages = [plan.parameters.signature_age for plan in plans if _depends_on_time(plan)]
        if ages:
            yield clock_of_signatures(readings.clock_error_s(), min(ages))
    yield from _clocks()
    yield _governor()
    yield from _packages(plans)
    yield _raw(plans)


def _buffers(limits: Sequence[Parameters]) -> Iterator[HostFinding]:
    wanted = max(parameters.so_rcvbuf for parameters in limits)
    rate = max(parameters.txw_max_rte for parameters in limits)
    granted = _granted(SO_RCVBUFFORCE, socket.SO_RCVBUF, wanted)
    yield _buffer("receive buffer", "rmem_max", wanted, granted, rate)
    wanted = max(parameters.so_sndbuf for parameters in limits)
    yield _buffer("send buffer", "wmem_max", wanted, _granted(SO_SNDBUFFORCE, socket.SO_SNDBUF, wanted), 0)


def _buffer(check: str, key: str, wanted: int, granted: int, rate: int) -> HostFinding:
    """Check one direction's buffer. `rate`, octets a second, gives the duration that it covers; 0 gives none."""
    most = readings.sysctl(f"net.core.{key}")
    most = granted if most is None else most
    by_force = " by privilege" if granted > most else ""
    held_ms = granted * SECOND / rate / MILLISECOND if rate else 0.0
    held = f": {held_ms:,.{0 if held_ms >= 100 else 1}f} ms of the stream" if rate else ""
    found = f"{key} {format_octets(most)}, this user gets {format_octets(granted)}{by_force}{held}"
    if most >= wanted:
        return ok(check, HERE, found, format_octets(wanted))
    make_finding = fault if granted * SECOND < rate * _AWAY_NS else advice
    remedy = f"sysctl -w net.core.{key}={wanted}; pgm render writes a file for it"
    return make_finding(check, HERE, found, format_octets(wanted), remedy)


def _granted(by_force: int, option: int, wanted: int) -> int:
    """Return the buffer of a node's socket for this user: half of the reported size, which includes the overhead."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, by_force, wanted)
        except OSError:
            sock.setsockopt(socket.SOL_SOCKET, option, wanted)
        return sock.getsockopt(socket.SOL_SOCKET, option) // 2


def _kernel(plans: Sequence[NodePlan], limits: Sequence[Parameters]) -> Iterator[HostFinding]:
    sockets = sum(1 if segment.peers is not None else 2 for plan in plans for segment in plan.segments) or 2
    wanted = sockets * max(parameters.so_rcvbuf for parameters in limits)
    pages = readings.read("/proc/sys/net/ipv4/udp_mem")
    if pages is not None:
        most = int(pages.split()[2]) * _PAGE
        found = f"udp_mem allows all sockets together {most // MIB} MiB"
        text = f"{wanted // MIB} MiB for {sockets} full ones"
        low = max(1, wanted // _PAGE)
        remedy = f'sysctl -w net.ipv4.udp_mem="{low} {low + low // 3} {2 * low}"'
        yield judged("memory of sockets", HERE, most >= wanted, found, text, remedy)
    members = readings.sysctl("net.ipv4.igmp_max_memberships")
    if members is not None:
        found, text = f"igmp_max_memberships {members}", "1: every socket joins one group"
        remedy = "sysctl -w net.ipv4.igmp_max_memberships=20"
        yield judged("memberships", HERE, members > 0, found, text, remedy, otherwise=fault)
    dropped = readings.udp_counter("RcvbufErrors")
    if dropped is not None:
        found = f"{dropped:,} packets dropped at full sockets since boot"
        remedy = "find the node by socket_drops in pgm status --detail; give the node a larger so_rcvbuf, or more processor time"
        yield judged("full sockets", HERE, not dropped, found, "0", remedy)
    dropped = readings.backlog_drops()
    if dropped is not None:
        found = f"{dropped:,} packets dropped before they reached a socket"
        remedy = f"sysctl -w net.core.netdev_max_backlog={4 * (readings.sysctl('net.core.netdev_max_backlog') or 1000)}"
        yield judged("backlog", HERE, not dropped, found, "0", remedy)


def _descriptors(plans: Sequence[NodePlan]) -> HostFinding:
    wanted = _DESCRIPTORS + _DESCRIPTORS_PER_LINK * max((len(plan.segments) for plan in plans), default=1)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found, text = f"{soft:,} open files a process", f"{wanted}"
    is_enough = soft in (resource.RLIM_INFINITY, -1) or soft >= wanted
    remedy = f"ulimit -n {wanted}; in a unit LimitNOFILE={wanted}"
    return judged("open files", HERE, is_enough, found, text, remedy, otherwise=fault)


def _memory(plans: Sequence[NodePlan]) -> Iterator[HostFinding]:
    most = readings.memory()
    if most is None:
        return
    wanted = sum(memory_of(plan) for plan in plans)
    text = f"{wanted // MIB:,} MiB if every window and cache of {len(plans)} nodes is full"
    remedy = "fewer nodes here, or smaller windows and caches: txw_secs, cache_bytes, rxw_bytes, inbox_bytes"
    yield judged("memory", HERE, most >= wanted, f"{most // MIB:,} MiB", text, remedy)


def free_memory(plans: Sequence[NodePlan], *, is_given_back: bool) -> HostFinding:
    """Check that receivers have their memory ready for late repairs; access to memory of the host would be slow."""
    wanted = "memory reserved at the start for packets that arrive during a late repair"
    if not is_given_back:
        return ok("free memory", HERE, "this machine keeps it", wanted)
    found = "given back to the host; the next access waits some ms for each MiB"
    for plan in plans:
        limits = plan.parameters
        needed = min(limits.rxw_bytes, limits.txw_max_rte * limits.nak_rdata_ivl // SECOND)
        if plan.role is Role.RECEIVER and needed > limits.rxw_warm_bytes:
            remedy = f"rxw_warm_bytes = {needed} of {plan.name}, or a host that leaves free memory to this machine"
            return advice("free memory", plan.name, found, wanted, remedy)
    return ok("free memory", HERE, found, wanted)


def _folders(plans: Sequence[NodePlan]) -> Iterator[HostFinding]:
    topology = plans[0].topology
    longest = max((control_path(topology, plan.name) for plan in plans), key=lambda path: len(os.fsencode(path)))
    length = len(os.fsencode(longest)) + 1  # the path of the status socket is one octet longer
    folder, remedy = (runtime_dir(topology), "set PGM_RUNTIME_DIR to a writable folder with a short path")
    if length > _LONGEST_PATH:
        yield fault("status sockets", HERE, f"{length} octets of path under {folder}", f"{_LONGEST_PATH}", remedy)
    elif not _may_write(folder):
        found = f"this user may not write in {folder}"
        yield fault("status sockets", HERE, found, "a folder that this user may write in", remedy)
    else:
        yield _trust(folder)
    for plan in plans:
        if plan.record_directory is not None:
            yield _room(plan, Path(plan.record_directory))


def _trust(folder: Path) -> HostFinding:
    """Whether another user could put sockets of their own in the place of the nodes' sockets."""
    try:
        check_folder(folder)
    except FileNotFoundError:
        pass  # the first node makes it, and what exists above it has been checked
    except ProcessError as error:
        return fault("status sockets", HERE, error.message, "changed by this user and root alone", error.remedy)
    return ok("status sockets", HERE, str(folder))


def _room(plan: NodePlan, folder: Path) -> HostFinding:
    wanted = plan.parameters.record_bytes
    text = f"{wanted // MIB:,} MiB, its record_bytes"
    if not _may_write(folder):
        remedy = f"chown it, or name another folder in {plan.name}'s record"
        return fault("archive", plan.name, f"this user may not write in {folder}", text, remedy)
    free = shutil.disk_usage(_existing(folder)).free
    found = f"{free // MIB:,} MiB free at {folder}"
    remedy = f"make room, or give {plan.name} a smaller record_bytes"
    return judged("archive", plan.name, free >= wanted, found, text, remedy)


def _keys(plans: Sequence[NodePlan]) -> Iterator[HostFinding]:
    """Check the private files of the nodes as each node does at its start."""
    for plan in plans:
        try:
            keys = own_keys(plan)
        except UsageError as error:
            yield fault(
                "keys", plan.name, error.message, "a valid private file that this user alone may read", error.remedy
            )
        else:
            if keys is not None:
                yield ok("keys", plan.name, f"{keys.public.id}, until {keys.public.end_day}")
                yield from key_advice(plan, today())


def key_advice(plan: NodePlan, day: date) -> Iterator[HostFinding]:
    """Advise a rotation before the last keys of a node expire, and the removal of private files that no line names."""
    listed = plan.identity.listed
    last = max(keys.end_day for keys in listed)
    if last <= day + timedelta(days=SOON_DAYS):
        remedy = f"pgm keys rotate FILE --node {plan.name} --write"
        yield advice("keys", plan.name, f"they end on {last}", f"valid for {SOON_DAYS} days more", remedy)
    known = {keys.id for keys in listed}
    for key_id, path in place_of_plan(plan).held().items():
        if key_id not in known:
            found = f"the private file {path} belongs to no line of the topology file"
            remedy = f"rm {path}, after a rotation on all hosts"
            yield advice("keys", plan.name, found, "private files of listed keys alone", remedy)


def _depends_on_time(plan: NodePlan) -> bool:
    return any(stream.signers is not None or stream.known_keys is not None for stream in plan.streams)


def clock_of_signatures(error_s: float | None, age_ns: int) -> HostFinding:
    """Check that other nodes will not take this node's signatures and codes for replays.

    `error_s` is the largest error of a synchronised clock; None: nobody keeps the clock.
    """
    wanted = f"within signature_age, {format_duration(age_ns)}, of the clocks of the other nodes"
    remedy = "run chrony or another NTP client; nodes refuse SPMs and requests with another time as replays"
    if error_s is None:
        return advice("clock of signatures", HERE, "not synchronised", wanted, remedy)
    found = f"at most {error_s:.3f} s wrong"
    return judged("clock of signatures", HERE, 2 * error_s * SECOND <= age_ns, found, wanted, remedy)


def aes_instructions(processors: str) -> HostFinding:
    """Check that the processors encrypt by their own instructions, by the text of /proc/cpuinfo."""
    has_aes = "aes" in processors.split()
    found = "the processors have AES instructions" if has_aes else "the processors have no AES instructions"
    remedy = "give the virtual machine the processor of its host; sealed streams take more processor time without them"
    return judged("AES", HERE, has_aes, found, "AES instructions, for sealed streams", remedy)


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())


def _may_write(folder: Path) -> bool:
    return os.access(_existing(folder), os.W_OK | os.X_OK)


def _clocks() -> Iterator[HostFinding]:
    name = readings.read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if name is not None:
        remedy = (
            "boot with clocksource=tsc, or choose another clock for the virtual machine; every packet reads the clock"
        )
        if name not in _SLOW_CLOCKS:
            yield ok("clock source", HERE, name)
        else:
            yield advice("clock source", HERE, name, "tsc", remedy)
    is_kept = readings.is_clock_kept()
    if is_kept is not None:
        found = "synchronised" if is_kept else "not synchronised"
        remedy = "run chrony or another NTP client; telemetry and archives of several machines are compared by time"
        yield ok("clock", HERE, found) if is_kept else advice("clock", HERE, found, "synchronised", remedy)


def _governor() -> HostFinding:
    paths = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    governors = sorted({text for path in paths if (text := readings.read(path))})
    if not governors or governors == ["performance"]:
        return ok("processors", HERE, ", ".join(governors) or "this machine has no governor")
    remedy = "cpupower frequency-set -g performance; a processor in deep sleep wakes late, and packets wait meanwhile"
    return advice("processors", HERE, f"governor {', '.join(governors)}", "performance", remedy)


def _packages(plans: Sequence[NodePlan]) -> Iterator[HostFinding]:
    records = any(plan.record_directory or plan.telemetry for plan in plans)
    has_parity = any(plan.parameters_of(stream).fec_group for plan in plans for stream in plan.streams)
    has_keys = any(plan.identity.listed for plan in plans)
    for name, extra, is_needed, purpose in (
        ("zfec", "fec", has_parity, "parity"),
        ("pyarrow", "arrow", records, "archives, telemetry and columns of messages"),
        ("cryptography", "trust", has_keys, "keys"),
        ("blake3", "trust", has_keys, "signed streams"),
        ("pyspark", "spark", False, "Spark"),
    ):
        remedy = f"pip install 'pgm-repair-network[{extra}]'"
        if find_spec(name) is not None:
            yield ok(name, HERE, f"installed, for {purpose}")
        elif is_needed:
            yield fault(name, HERE, "not installed", f"these nodes need it for {purpose}", remedy)
        else:
            yield ok(name, HERE, f"not installed; only needed for {purpose}")
    if find_spec("pyspark") is not None and not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        yield advice("java", HERE, "not found", "17 or later, for Spark", "apt-get install openjdk-17-jre-headless")


def _raw(plans: Sequence[NodePlan]) -> HostFinding:
    is_needed = any(segment.transport == "ip" for plan in plans for segment in plan.segments)
    check, text = f"IP protocol {PROTOCOL}", 'for transport = "ip"'
    try:
        open_raw(socket.AF_INET, "any").close()
    except TransportError as error:
        if is_needed:
            return fault(check, HERE, "this user may not", text, error.remedy)
        return ok(check, HERE, f"this user may not; only needed {text}")
    return ok(check, HERE, f"allowed, {text}")
