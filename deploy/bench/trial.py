"""One trial: a sender process and a receiver process on a path, and their result."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from deploy.bench.contender import Contender, Job
from deploy.bench.peer import Peer, ProcessUsage, running

_START_S = 30.0  # start of an interpreter with numpy and trio on a busy machine
_SPARE_S = 30.0  # beyond the expected duration of sending or receiving
_KEPT_UP = 0.95  # share of the offered rate that the receiver must reach
_SLACK_S = 0.05


@attrs.frozen
class PeerResult:
    """Report and resources of one process in a trial."""

    report: dict[str, Any]
    cpu_s: float
    peak_octets: int


@attrs.frozen
class TrialResult:
    """Result of one trial, as the receiver saw it."""

    size: int
    rate: float  # requested messages a second; 0 means as fast as possible
    sent: int
    received: int
    disordered: int
    damaged: int
    seconds: float  # from the first message to the last, at the receiver
    send_s: float
    sender: PeerResult
    receiver: PeerResult
    kernel_drops: int
    datagrams: int  # received by the receiver's host; 0 if other programs share the host's counter

    @property
    def lost(self) -> int:
        """Return the number of messages that did not arrive."""
        return self.sent - self.received

    @property
    def messages_per_s(self) -> float:
        """Return the rate at the receiver."""
        return self.received / self.seconds if self.seconds else 0.0

    @property
    def offered_per_s(self) -> float:
        """Return the rate at the sender."""
        return self.sent / self.send_s if self.send_s else 0.0

    @property
    def mb_per_s(self) -> float:
        """Return the payload rate at the receiver, in units of 10^6 octets."""
        return self.messages_per_s * self.size / 1e6

    @property
    def packets(self) -> int:
        """Return the packets that carried the messages, or 0 if unknown."""
        return int(self.receiver.report.get("packets", self.datagrams))

    @property
    def repaired(self) -> int | None:
        """Return the lost packets that were repaired, or None if unknown."""
        repaired: int | None = self.receiver.report.get("repaired")
        return repaired

    @property
    def is_whole(self) -> bool:
        """Return whether all messages arrived in order, undamaged, and at the rate sent."""
        is_right = not (self.lost or self.disordered or self.damaged)
        return is_right and self.seconds <= self.send_s / _KEPT_UP + _SLACK_S

    @property
    def flaw(self) -> str:
        """Return the reason why the trial failed, or ""."""
        if self.lost:
            return f"{self.lost:,} of {self.sent:,} messages lost"
        if self.disordered or self.damaged:
            return f"{self.disordered:,} times out of order, {self.damaged:,} damaged"
        return "" if self.is_whole else "the receiver fell behind"


def environment() -> dict[str, str]:
    """Return the environment of peer processes. The processes can import this package from any working folder."""
    root = str(Path(__file__).resolve().parents[2])
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}:{known}" if known else root}


@asynccontextmanager
async def pair(contender: Contender, job: Job, ends: tuple[str, str]) -> AsyncIterator[tuple[Peer, Peer]]:
    """Run both processes of a contender for the length of a block.

    `ends` names the sending end first ("send" or "ping"), then the receiving end. Both processes are ready when the
    block begins. Raises `ProcessError`.
    """
    first, second = ends
    far = job.place.wrap(job.receiver.host, contender.command(second, job))
    near = job.place.wrap(job.sender.host, contender.command(first, job))
    async with running(f"{contender.name} ({second})", far, environment()) as receiver:
        # The sender starts later: a first probe that nobody hears would be one more packet to repair.
        await receiver.until("ready", _START_S)
        async with running(f"{contender.name} ({first})", near, environment()) as sender:
            await sender.until("ready", _START_S)
            yield sender, receiver


async def transfer(contender: Contender, job: Job) -> TrialResult:
    """Send from one process to another and return the result. Raises `ProcessError`."""
    async with pair(contender, job, ("send", "recv")) as (sender, receiver):
        await receiver.until("hears", _START_S)
        before = [sender.usage, receiver.usage]
        udp_before = job.place.udp_statistics(job.receiver.host)
        await sender.tell("go")
        sent = await sender.until("sent", job.seconds * 2 + _SPARE_S)
        after_sending = sender.usage
        await receiver.tell(f"expect {sent['messages']}")
        result = await receiver.until("result", job.seconds * 4 + job.quiet_s + _SPARE_S)
        after = receiver.usage
        udp = job.place.udp_statistics(job.receiver.host)
        counts = {key: udp[key] - udp_before[key] for key in ("InDatagrams", "RcvbufErrors")}
        return TrialResult(
            size=job.size,
            rate=job.rate,
            sent=sent["messages"],
            received=result["messages"],
            disordered=result.get("disordered", 0),
            damaged=result.get("damaged", 0),
            seconds=max(0, result["last_ns"] - result["first_ns"]) / 1e9,
            send_s=sent["seconds"],
            sender=_peer_result(sent, before[0], after_sending),
            receiver=_peer_result(result, before[1], after),
            kernel_drops=result.get("kernel_drops") or counts["RcvbufErrors"],
            datagrams=0 if job.place.kind == "loopback" else counts["InDatagrams"],
        )


def _peer_result(report: dict[str, Any], before: ProcessUsage, after: ProcessUsage) -> PeerResult:
    return PeerResult(report, after.cpu_s - before.cpu_s, after.peak_octets)
