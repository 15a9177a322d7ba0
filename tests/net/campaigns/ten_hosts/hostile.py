"""Clients that wish an agent ill: `main(ADDRESS, PORT, SECONDS)` asks in all ways, and prints what the agent answered."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
from collections import Counter

from tests.net.campaigns.ten_hosts.network import TOKEN

_SLOW = 60  # connections that never complete a request
_HUGE = 1 << 24  # octets
_PATHS = (
    "/fleet/v1/../../etc/passwd",
    "/fleet/v1/%2e%2e/%2e%2e/etc/passwd",
    "//etc/passwd",
    "/..%2f..%2fetc/passwd",
    "/node?topology=ten&name=../../etc/passwd",
    "/explain?topology=../../etc&stream=s&sqn=1",
    "/fleet/v1/flight?packet=s:" + "9" * 5000,
    "/\x00",
    "http://other/fleet/v1/state",
)


def _connected(address: str, port: int) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection((address, port), timeout=20))


def _status(address: str, port: int, octets: bytes) -> str:
    """Return the status of the answer to a request; `closed` if the agent closes instead."""
    try:
        with contextlib.closing(_connected(address, port)) as secure:
            with contextlib.suppress(OSError):  # the agent may have had enough before the end
                secure.sendall(octets)
            words = secure.recv(4096).split()
    except OSError:
        return "closed"
    return words[1].decode() if len(words) > 1 else "closed"


def request(method: str, path: str, *headers: str, token: str = "", body: bytes = b"") -> bytes:
    """Return a request. Nothing is escaped."""
    access = [f"Authorization: Bearer {token}"] if token else []
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *access, *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def main(address: str, port: str, seconds: str) -> None:
    """Ask in all ways for so many seconds."""
    until, where = time.monotonic() + float(seconds), (address, int(port))
    slow = [socket.create_connection(where) for _ in range(_SLOW)]  # without a handshake
    dripping = [_connected(*where) for _ in range(10)]
    long = f"Content-Length: {_HUGE}"
    ways = {
        "no token": request("GET", "/fleet/v1/state"),
        "wrong token": request("GET", "/fleet/v1/state", token=f"{TOKEN}x"),
        "control without token": request("POST", "/fleet/v1/control", "Content-Length: 2", body=b"{}"),
        "huge header": request("GET", "/fleet/v1/state", f"X: {'x' * _HUGE}", token=TOKEN),
        "huge body": request("POST", "/fleet/v1/control", long, token=TOKEN, body=bytes(_HUGE)),
        "no HTTP": b"\x16\x03\x01" * 1000 + b"\r\n\r\n",
        **{path[:40]: request("GET", path, token=TOKEN) for path in _PATHS},
    }
    told: dict[str, Counter[str]] = {way: Counter() for way in ways}
    rounds = 0
    while not rounds or time.monotonic() < until:
        for way, octets in ways.items():
            told[way][_status(*where, octets)] += 1
        for one in dripping:
            with contextlib.suppress(OSError):  # closed after ten seconds without a whole request
                one.sendall(b"G")
        rounds += 1
    for silent in slow:
        silent.close()
    print(json.dumps({"rounds": rounds, "told": told}))
