"""One trial: a sender's and a receiver's process on a path, and what came of it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from deploy.bench.contender import Contender, Job
from deploy.bench.peer import Peer, ProcessUsage, running

_START_S = 30.0  # an interpreter with numpy and trio on a busy machine
_SPARE_S = 30.0  # beyond the time that sending or receiving should take
_KEPT_UP = 0.95  # of the rate offered must reach the receiver as it is sent
_SLACK_S = 0.05


@attrs.frozen
class PeerResult:
    """What one process did and used during a trial."""

    said: dict[str, Any]
    cpu_s: float
    peak_octets: int


@attrs.frozen
class TrialResult:
    """One trial. The figures are the receiver's."""

    size: int
    rate: float  # messages a second asked for, 0 for as fast as it goes
    sent: int
    received: int
    disordered: int
    damaged: int
    seconds: float  # from the first message to the last, at the receiver
    send_s: float
    sender: PeerResult
    receiver: PeerResult
    kernel_drops: int
    datagrams: int  # that the receiver's host took in, 0 where others share it

    @property
    def lost(self) -> int:
        """Messages that never came."""
        return self.sent - self.received

    @property
    def messages_per_s(self) -> float:
        """At the receiver."""
        return self.received / self.seconds if self.seconds else 0.0

    @property
    def offered_per_s(self) -> float:
        """At the sender."""
        return self.sent / self.send_s if self.send_s else 0.0

    @property
    def mb_per_s(self) -> float:
        """Payload at the receiver, in units of 10^6 octets."""
        return self.messages_per_s * self.size / 1e6

    @property
    def packets(self) -> int:
        """Packets that carried it, 0 if nobody knows."""
        return int(self.receiver.said.get("packets", self.datagrams))

    @property
    def repaired(self) -> int | None:
        """Packets that were lost on the way and came all the same; None if nobody knows."""
        found: int | None = self.receiver.said.get("repaired")
        return found

    @property
    def is_whole(self) -> bool:
        """Whether everything came, in order and unharmed, while it was sent."""
        is_right = not (self.lost or self.disordered or self.damaged)
        return is_right and self.seconds <= self.send_s / _KEPT_UP + _SLACK_S

    @property
    def flaw(self) -> str:
        """What was wrong with it, or empty."""
        if self.lost:
            return f"{self.lost:,} of {self.sent:,} messages lost"
        if self.disordered or self.damaged:
            return f"{self.disordered:,} times out of order, {self.damaged:,} damaged"
        return "" if self.is_whole else "the receiver fell behind"


def environment() -> dict[str, str]:
    """Of the processes: they find this package wherever it was started from."""
    root = str(Path(__file__).resolve().parents[2])
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}:{known}" if known else root}


@asynccontextmanager
async def pair(contender: Contender, job: Job, ends: tuple[str, str]) -> AsyncIterator[tuple[Peer, Peer]]:
    """The two processes of a contender, both ready: whoever sends or asks, and whoever receives or answers."""
    first, second = ends
    far = job.place.wrap(job.receiver.host, contender.command(second, job))
    near = job.place.wrap(job.sender.host, contender.command(first, job))
    async with running(f"{contender.name} ({second})", far, environment()) as receiver:
        await receiver.until("ready", _START_S)
        async with running(f"{contender.name} ({first})", near, environment()) as sender:
            await sender.until("ready", _START_S)
            yield sender, receiver


async def transfer(contender: Contender, job: Job) -> TrialResult:
    """Send from one process to another. Raises `ProcessError`."""
    async with pair(contender, job, ("send", "recv")) as (sender, receiver):
        await receiver.until("hears", _START_S)
        before = [sender.usage, receiver.usage]
        udp_before = job.place.udp_statistics(job.receiver.host)
        await sender.tell("go")
        sent = await sender.until("sent", job.seconds * 2 + _SPARE_S)
        after_sending = sender.usage
        await receiver.tell(f"expect {sent['messages']}")
        got = await receiver.until("result", job.seconds * 4 + job.quiet_s + _SPARE_S)
        after = receiver.usage
        udp = job.place.udp_statistics(job.receiver.host)
        seen = {key: udp[key] - udp_before[key] for key in ("InDatagrams", "RcvbufErrors")}
        return TrialResult(
            size=job.size,
            rate=job.rate,
            sent=sent["messages"],
            received=got["messages"],
            disordered=got.get("disordered", 0),
            damaged=got.get("damaged", 0),
            seconds=max(0, got["last_ns"] - got["first_ns"]) / 1e9,
            send_s=sent["seconds"],
            sender=_role(sent, before[0], after_sending),
            receiver=_role(got, before[1], after),
            kernel_drops=got.get("kernel_drops") or seen["RcvbufErrors"],
            datagrams=0 if job.place.kind == "loopback" else seen["InDatagrams"],
        )


def _role(said: dict[str, Any], before: ProcessUsage, after: ProcessUsage) -> PeerResult:
    return PeerResult(said, after.cpu_s - before.cpu_s, after.peak_octets)
