"""ZeroMQ's ends over `epgm`.

The interpreter with the distribution's pyzmq runs this program. This interpreter may have none of pgm's dependencies,
and `deploy.bench.peers.control` needs none.
"""

from __future__ import annotations

import time
from typing import Any

import zmq

from deploy.bench.peers.control import QUIET_S, Control, run_end

PROBE = b"?"
WAIT_S = 0.02
LOOK_MESSAGES = 4096
# libzmq multiplies the rate, in kbit/s, by 1000 in an int. For repairs, libzmq keeps the data of a recovery interval at
# this rate, so the rate limits the interval.
MOST_KBITS = 2_000_000
RECOVERY_IVL_MS = 500
IP_AND_UDP_OCTETS = 28
# Limits of the queue between the program and libzmq's thread. A queue of large messages would take gigabytes.
MOST_QUEUED = 10_000  # messages
QUEUE_OCTETS = 64 << 20
BATCH_OCTETS = 65_536  # between two clock readings


def open_socket(kind: int, job: dict[str, Any], seat: str, group: int) -> Any:
    """Return a socket on a group, with the rate and buffers of the job."""
    sock: Any = zmq.Context.instance().socket(kind)
    sock.setsockopt(zmq.RATE, MOST_KBITS)  # libzmq's rate limit passes about half of its value
    sock.setsockopt(zmq.RECOVERY_IVL, RECOVERY_IVL_MS)
    sock.setsockopt(zmq.MULTICAST_HOPS, 1)
    # libzmq counts the IP and UDP headers as well.
    sock.setsockopt(zmq.MULTICAST_MAXTPDU, job["max_datagram"] + IP_AND_UDP_OCTETS)
    sock.setsockopt(zmq.RCVBUF, job["rcvbuf"])
    sock.setsockopt(zmq.SNDBUF, job["sndbuf"])
    sock.setsockopt(zmq.LINGER, 0)
    if kind == zmq.SUB:
        sock.setsockopt(zmq.SUBSCRIBE, b"")
        sock.setsockopt(zmq.RCVHWM, 0)
    else:
        sock.setsockopt(zmq.XPUB_NODROP, 1)
        sock.setsockopt(zmq.SNDHWM, max(2, min(MOST_QUEUED, QUEUE_OCTETS // job["size"])))
    # Each direction has its own port, because libzmq opens a port for every group.
    own = job.get("own", job[seat]["address"])
    sock.connect(f"epgm://{own};{job['groups'][group]}:{job['port'] + group}")
    return sock


def send(control: Control, job: dict[str, Any]) -> None:
    """Send probes, then messages at the job's rate."""
    sock = open_socket(zmq.PUB, job, "sender", 0)
    control.say("ready")
    while control.word(WAIT_S) != "go":
        if control.is_over:
            return
        sock.send(PROBE)
    payload = bytes(job["size"])
    until = time.monotonic() + job["seconds"]
    ns_each = 1e9 / job["rate"] if job["rate"] else 0.0
    sent, begun_ns, batch = 0, time.monotonic_ns(), max(1, BATCH_OCTETS // job["size"])
    while time.monotonic() < until and (not job["messages"] or sent < job["messages"]):
        for _ in range(batch):
            sock.send(payload)
        sent += batch
        while time.monotonic_ns() < begun_ns + sent * ns_each:
            pass
    control.say("sent", messages=sent, seconds=(time.monotonic_ns() - begun_ns) / 1e9)
    control.wait_until_over()


def recv(control: Control, job: dict[str, Any]) -> None:
    """Receive until all messages arrived, or until `quiet_s` of silence."""
    sock = open_socket(zmq.SUB, job, "receiver", 0)
    sock.setsockopt(zmq.RCVTIMEO, round(WAIT_S * 1000))
    control.say("ready")
    while not control.is_over:
        control.word()
        try:
            sock.recv()
        except zmq.Again:
            continue
        break
    control.say("hears")
    messages, first_ns, last_ns, expected, quiet_s, reads = 0, 0, 0, None, 0.0, 0
    while not control.is_over and quiet_s < job["quiet_s"] and (expected is None or messages < expected):
        reads += 1
        try:
            if len(sock.recv()) > len(PROBE):
                messages += 1
                first_ns = first_ns or time.monotonic_ns()
            quiet_s = 0.0
            is_pause = False
        except zmq.Again:
            quiet_s += WAIT_S if expected is not None else 0.0
            is_pause = True
        if not is_pause and (reads % 64 == 0 or expected is not None):
            last_ns = time.monotonic_ns()
        if is_pause or reads % LOOK_MESSAGES == 0:
            word = control.word()
            if word.startswith("expect"):
                expected = int(word.split()[1])
    control.say("result", messages=messages, first_ns=first_ns, last_ns=last_ns)
    control.wait_until_over()


def ping(control: Control, job: dict[str, Any]) -> None:
    """Send requests and measure the times to their answers."""
    out = open_socket(zmq.PUB, job, "sender", 0)
    back = open_socket(zmq.SUB, job, "sender", 1)
    back.setsockopt(zmq.RCVTIMEO, round(QUIET_S * 1000))
    control.say("ready")
    while control.word(WAIT_S) != "go" and not control.is_over:
        pass
    payload = bytes(job["size"])
    times: list[int] = []
    lost = 0
    counts_from = time.monotonic() + 0.5
    until = counts_from + job["seconds"]
    while time.monotonic() < until:
        begun_ns = time.monotonic_ns()
        out.send(payload)
        try:
            back.recv()
        except zmq.Again:
            lost += begun_ns / 1e9 >= counts_from
            continue
        if begun_ns / 1e9 >= counts_from:
            times.append(time.monotonic_ns() - begun_ns)
    control.say("result", **distribution(times), lost_trips=lost)
    control.wait_until_over()


def distribution(times_ns: list[int]) -> dict[str, float]:
    """Return the figures in microseconds."""
    times = sorted(times_ns) or [0]

    def at(share: float) -> float:
        return round(times[min(len(times) - 1, int(share * len(times)))] / 1000, 2)

    return {
        "trips": len(times_ns),
        "mean_us": round(sum(times) / len(times) / 1000, 2),
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "p999_us": at(0.999),
        "min_us": at(0.0),
        "max_us": at(1.0),
    }


def pong(control: Control, job: dict[str, Any]) -> None:
    """Answer each request."""
    out = open_socket(zmq.PUB, job, "receiver", 1)
    back = open_socket(zmq.SUB, job, "receiver", 0)
    back.setsockopt(zmq.RCVTIMEO, round(WAIT_S * 1000))
    control.say("ready")
    while not control.is_over:
        try:
            out.send(back.recv())
        except zmq.Again:
            control.word()


if __name__ == "__main__":
    run_end({"send": send, "recv": recv, "ping": ping, "pong": pong})
    zmq.Context.instance().destroy(linger=0)
