"""SIGKILL in mid-stream: the rest of the tree continues, losses are reported, and restarted nodes rejoin."""

from __future__ import annotations

import itertools
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from pgm.wire.control_packets import Spm, decode_control_untrusted
from tests.net.support.places import Place
from tests.net.support.processes import count, streaming

RATE = "8Mbit/s"  # some 700 messages a second
TAKEOVER_S = 0.8
EXPIRY_S = 1.2
SLACK_S = 0.5  # for a machine that does other things too

# Short timers, in the proportions of the defaults.
PARAMETERS = f"""
[parameters]
ambient_spm_ivl = "100ms"
ihb_min = "20ms"
ihb_max = "200ms"
fin_quiet_ivl = "500ms"
stall_ivl = "600ms"
peer_expiry = "{EXPIRY_S}s"
relay_takeover_ivl = "{TAKEOVER_S}s"
parent_retry_ivl = "500ms"
spmr_bo_ivl = "50ms"
txw_adv_secs = "100ms"
rdata_share = "100%"
"""


def head(place: Place, window: str = "20s", parameters: str = PARAMETERS) -> str:
    return f"""
version = 1
name = "t{place.number}"
{parameters}
[streams.s]
data_port = 7500
rate = "{RATE}"
window = "{window}"
"""


def segment(place: Place, name: str, number: int, loss: str = "") -> str:
    return f"\n{place.segment(name, number)}\n" + (f"loss = {loss}\n" if loss else "")


def node(place: Place, name: str, role: str, host: int, **keys: Any) -> str:
    lines = [f'[nodes."{name}"]', f'role = "{role}"']
    if host:
        lines.append(f'address = "{place.address(host)}"')
    lines += [f"{key} = {value!r}".replace("'", '"') for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def receivers(place: Place, on: str, parents: list[str], loss: str = '{ loss = "4%" }') -> str:
    pool = f"{place.address(100)}-{place.address(120)}"
    text = node(place, "desk-*", "receiver", 0, segment=on, count=3, addresses=pool, parents=parents)
    return f"{text}loss = {loss}\n"


def on_lan(place: Place) -> str:
    """One segment: the aggregator takes the NAKs, the repairer answers them, the source is the last parent."""
    return "".join(
        [
            head(place),
            segment(place, "lan", 0),
            node(place, "source", "source", 1, segment="lan", streams=["s"]),
            node(place, "aggregator", "aggregator", 2, segment="lan", repairers=["repairer"], parents=["source"]),
            node(place, "repairer", "repairer", 3, segment="lan", parents=["source"]),
            receivers(place, "lan", ["aggregator", "repairer", "source"]),
        ]
    )


def seat(place: Place, on: str, host: int) -> str:
    return f'{{ segment = "{on}", address = "{place.address(host)}" }}'


def relay(place: Place, name: str, role: str, up: int, down: int, parents: list[str], **keys: Any) -> str:
    lines = [f'[nodes."{name}"]', f'role = "{role}"', f"upstream = {seat(place, 'core', up)}"]
    lines += [f"downstream = [{seat(place, 'hall', down)}]", f"parents = {parents}"]
    lines += [f"{key} = {value!r}" for key, value in keys.items()]
    return "\n".join(lines).replace("'", '"') + "\n"


def two_tiers(place: Place, role: str, window: str = "20s", *, standby: bool = False, repairer: bool = False) -> str:
    """A relay between core and hall, with an optional standby or repairer of the hall."""
    wanted = {"repairers": ["repairer"]} if repairer else {}
    parents = ["relay", "standby"] if standby else ["relay"]
    parts = [
        head(place, window),
        segment(place, "core", 0),
        segment(place, "hall", 1),
        node(place, "source", "source", 1, segment="core", streams=["s"]),
        relay(place, "relay", role, 2, 11, ["source"], **wanted),
        relay(place, "standby", role, 3, 12, ["source"], standby_of="relay") if standby else "",
        node(place, "repairer", "repairer", 13, segment="hall", parents=["relay"]) if repairer else "",
        receivers(place, "hall", [*parents, "repairer"] if repairer else parents),
    ]
    return "".join(parts)


def tree_of(place: Place) -> str:
    return f"t{place.number}"


DESKS = ["desk-1", "desk-2", "desk-3"]


# (a) Elements that only repair


@pytest.mark.parametrize("victim", ["repairer", "aggregator"])
def test_an_on_lan_element_is_killed_and_comes_back(place: Place, victim: str) -> None:
    served = "rdata_packets" if victim == "repairer" else "nak_packets_in"
    with streaming(on_lan(place), tree_of(place), DESKS, ["aggregator", "repairer"]) as stream:
        tree = stream.tree
        tree.until(victim, lambda snapshot: count(snapshot, served) > 20)
        tree.running[victim].kill()
        stream.until_delivered(500)
        tree.start_all([victim])
        tree.until(victim, lambda snapshot: count(snapshot, served) > 0)
        stream.end_whole()


def test_a_subnets_repairer_is_killed_and_comes_back(place: Place) -> None:
    text = two_tiers(place, "aggregator", repairer=True)
    with streaming(text, tree_of(place), DESKS, ["relay", "repairer"]) as stream:
        tree = stream.tree
        tree.until("repairer", lambda snapshot: count(snapshot, "rdata_packets") > 20)
        tree.running["repairer"].kill()
        repaired = count(tree.status("relay"), "rdata_packets")
        stream.until_delivered(500)
        tree.until("relay", lambda snapshot: count(snapshot, "rdata_packets") > repaired + 20)
        tree.start_all(["repairer"])
        tree.until("repairer", lambda snapshot: count(snapshot, "rdata_packets") > 0)
        rows = stream.end_whole()
    assert all(row["repaired"] == row["repaired_locally"] > 0 for row in rows), "meanwhile the relay repaired"


# (b) A relay with a standby


@attrs.frozen
class Heard:
    """One SPM on a group."""

    at: float
    peer: str
    spm_sqn: int
    path: str


class Listener:
    """Plain socket on a group that records every SPM."""

    def __init__(self, group: str, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.bind((group, port))
        request = struct.pack("=4s4si", socket.inet_aton(group), bytes(4), socket.if_nametoindex("lo"))
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        self._socket.settimeout(0.2)
        self.heard: list[Heard] = []
        self._is_open = True
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while self._is_open:
            try:
                octets, (peer, _) = self._socket.recvfrom(65_536)
            except TimeoutError:
                continue
            packet = decode_control_untrusted(octets) if octets[4] == 0 else None
            if isinstance(packet, Spm):
                self.heard.append(Heard(time.monotonic(), peer, packet.spm_sqn, packet.path_nla))

    def close(self) -> None:
        self._is_open = False
        self._thread.join()
        self._socket.close()

    @property
    def speakers(self) -> list[str]:
        """Return the senders of SPMs, in order."""
        return [peer for peer, _ in itertools.groupby(self.heard, lambda one: one.peer)]


@contextmanager
def listening(group: str, port: int) -> Iterator[Listener]:
    """Open a listener for the length of a block."""
    listener = Listener(group, port)
    try:
        yield listener
    finally:
        listener.close()


@pytest.mark.parametrize("role", ["repairer", "aggregator"])
def test_a_standby_takes_over_and_the_restarted_relay_keeps_silent(place: Place, role: str) -> None:
    relay_address, standby_address = place.address(11), place.address(12)
    text = two_tiers(place, role, standby=True)
    served = "rdata_packets" if role == "repairer" else "nak_packets_in"
    with (
        listening(place.group(1), place.port) as listener,
        streaming(text, tree_of(place), DESKS, ["relay", "standby"]) as stream,
    ):
        tree = stream.tree
        stream.until_delivered(300)
        assert listener.speakers == [relay_address]
        killed_at = tree.running["relay"].kill()
        spoke_at = tree.running["standby"].line_with("relay-speaking", after=killed_at)
        tree.start_all(["relay"])
        tree.until("relay", lambda snapshot: count(snapshot, served) > 0)
        stream.end_whole()
        relay = tree.status("relay")
    assert listener.speakers == [relay_address, standby_address], "never two speakers, and no return"
    assert all(one.path == one.peer for one in listener.heard)
    assert (count(relay, "spm_packets"), count(relay, "odata_packets")) == (0, 0), "the restarted relay keeps silent"
    last = max(one.at for one in listener.heard if one.peer == relay_address)
    first = min(one.at for one in listener.heard if one.peer == standby_address)
    print(
        f"{role}: the standby spoke {spoke_at - killed_at:.2f} s after the kill; SPMs were {first - last:.2f} s apart"
    )
    assert spoke_at - killed_at < TAKEOVER_S + SLACK_S
    assert first - last < TAKEOVER_S + SLACK_S
    numbers = [one.spm_sqn for one in listener.heard]
    assert numbers == sorted(numbers)


# (c) A relay without one


@pytest.mark.parametrize("role", ["repairer", "aggregator"])
def test_kill_lone_relay_everything_is_repaired_after_restart(place: Place, role: str) -> None:
    with streaming(two_tiers(place, role), tree_of(place), DESKS, ["relay"]) as stream:
        stream.until_delivered(300)
        killed_at = stream.tree.running["relay"].kill()
        missed = [receiver.line_with("silent", after=killed_at) - killed_at for receiver in stream.receivers]
        print(f"{role}: silence was reported after {', '.join(f'{after:.2f}' for after in missed)} s")
        assert all(EXPIRY_S - 0.3 < after < EXPIRY_S + SLACK_S for after in missed)
        stream.tree.start_all(["relay"])
        for receiver in stream.receivers:
            receiver.line_with("resumed:", after=killed_at)
        stream.end_whole()


def test_kill_packets_behind_the_window_are_lost_in_order(place: Place) -> None:
    text = two_tiers(place, "aggregator", window="300ms")
    with streaming(text, tree_of(place), DESKS, ["relay"]) as stream:
        stream.until_delivered(300)
        killed_at = stream.tree.running["relay"].kill()
        for receiver in stream.receivers:
            receiver.line_with("silent", after=killed_at)
        stream.tree.start_all(["relay"])
        for receiver in stream.receivers:
            receiver.line_with("lost-window: ", after=killed_at)
        rows = stream.end()
    for row, receiver in zip(rows, stream.receivers, strict=True):
        assert row["lost"] > 0
        assert row["delivered"] + row["lost"] == stream.messages
        assert (row["duplicates"], row["out_of_order"], row["damaged"]) == (0, 0, 0)
        lost = re.findall(r"lost-window: session \S+ sqns (\d+) to (\d+): window", receiver.log)
        spans = [(int(first), int(last)) for first, last in lost]
        assert spans == sorted(spans)
        assert sum(last - first + 1 for first, last in spans) == row["lost"]
