"""Reports of a node to a service manager, received by a socket as systemd receives them."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from pgm.net.control.service_manager import ServiceManager
from pgm.units import MILLISECOND
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import PATIENCE_S, processes


def until_told(sock: socket.socket, wanted: str) -> set[str]:
    """Receive reports until one has the wanted line. Return the lines so far."""
    told: set[str] = set()
    while wanted not in told:
        told.update(sock.recv(4096).decode().splitlines())
    return told


def test_a_manager_is_taken_from_the_environment() -> None:
    assert list(ServiceManager.named_in({}, 7)) == []
    assert list(ServiceManager.named_in({"NOTIFY_SOCKET": ""}, 7)) == []
    named = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "30000"}
    assert list(ServiceManager.named_in(named, 7)) == [ServiceManager("/run/notify", 30 * MILLISECOND)]
    other = named | {"WATCHDOG_PID": "8"}
    assert list(ServiceManager.named_in(other, 7)) == [ServiceManager("/run/notify", 0)]


def test_a_manager_that_has_gone_ends_nothing(tmp_path: Path) -> None:
    ServiceManager(str(tmp_path / "nobody")).tell("READY=1")
    ServiceManager(f"@pgm-test-nobody-{os.getpid()}").tell("READY=1")


def test_node_is_ready_with_its_first_packet_and_feeds_watchdog() -> None:
    place = Place.new()
    text = one_segment(place, parameters='ready_ivl = "1h"')
    with processes(text, f"t{place.number}") as nodes, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        path = nodes.folder / "notify"
        sock.bind(str(path))
        sock.settimeout(PATIENCE_S)
        manager = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "60000"}
        desk = nodes.start("desk-1", env=manager)
        assert "READY=1" not in until_told(sock, "WATCHDOG=1")
        nodes.start("source", "--generate", "100")
        told = until_told(sock, "READY=1")
        assert "STATUS=waiting for the first packet" in told
        until_told(sock, "WATCHDOG=1")
        desk.process.send_signal(signal.SIGTERM)
        until_told(sock, "STOPPING=1")
        assert desk.wait() == 0
