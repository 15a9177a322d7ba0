"""A netcheck step by step: all agents open their sockets, all send, and each sender sends its burst in its turn."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import trio

from deploy.netcheck.probes import ID_OCTETS, MOST_HOSTS
from deploy.netcheck.reports import HostReport, opened_untrusted, with_result_untrusted
from pgm.errors import PgmError, ProcessError, UsageError
from pgm.fleet.agent_client import AgentClient
from pgm.fleet.nodes import HostRecord
from pgm.fleet.paths import NETCHECK_PATH

_REQUEST_S = 15.0  # reading a file and checking a host's interfaces on a busy machine; sending takes 2 s
_MOST_AT_ONCE = 64  # hosts asked at a time, as for a fleet view
_CLOSE_S = 5.0  # then the agents close by themselves, a minute later
_SETTLE_S = 0.3  # until probes in flight, and in sockets, are counted

R = TypeVar("R")
Say = Callable[[str], None]


@attrs.frozen
class NetcheckResult:
    """Reports of the hosts that took part, and the reasons of those that did not."""

    reports: tuple[HostReport, ...]
    problems: Mapping[str, ProcessError]
    shares: Mapping[str, float]  # of the streams' rate, in the bursts, by segment


@attrs.define
class Conductor:
    """Requests of one netcheck to the agents of some hosts, which are asked within bounds."""

    client: AgentClient
    hosts: Sequence[HostRecord]
    say: Say
    _id: str = attrs.field(init=False, factory=lambda: os.urandom(ID_OCTETS).hex())
    _problems: dict[str, ProcessError] = attrs.field(init=False, factory=dict)
    _limit: trio.CapacityLimiter = attrs.field(init=False, factory=lambda: trio.CapacityLimiter(_MOST_AT_ONCE))

    async def run(self, shares: Callable[[Sequence[HostReport]], Mapping[str, float]]) -> NetcheckResult:
        """Run the netcheck. `shares` gives the part of the streams' rate that a burst may have on each segment."""
        self.client = attrs.evolve(self.client, timeout_s=_REQUEST_S)
        asked = dict(enumerate(self.hosts[:MOST_HOSTS]))
        try:
            self.say(f"asking {len(asked)} hosts to open sockets for probes")
            opened = await self._each(asked, self._open)
            return await self._run({number: asked[number] for number in opened}, opened, shares)
        finally:
            with trio.move_on_after(_CLOSE_S, shield=True):
                await self._each(asked, self._close)

    async def _run(
        self,
        taking: Mapping[int, HostRecord],
        opened: Mapping[int, HostReport],
        shares: Callable[[Sequence[HostReport]], Mapping[str, float]],
    ) -> NetcheckResult:
        if not taking:
            return NetcheckResult((), self._problems, {})
        self.say(f"sending probes between {len(taking)} hosts")
        await self._each(taking, lambda number, host: self._probe(number, host, opened))
        allowed = shares(list(opened.values()))
        for turn in turns_of(opened, allowed):
            named = ", ".join(f"{opened[number].name} on {segment}" for number, segment in turn)
            self.say(f"sending at the rate of the streams: {named}")
            await self._burst(turn, allowed)
        await trio.sleep(_SETTLE_S)
        results = await self._each(taking, lambda _, host: self._post(host, {"do": "result"}))
        reports = tuple(with_result_untrusted(opened[number], result) for number, result in results.items())
        return NetcheckResult(reports, self._problems, allowed)

    async def _close(self, _: int, host: HostRecord) -> None:
        with contextlib.suppress(ProcessError, UsageError):  # nothing is open there
            await self._post(host, {"do": "close"})

    async def _open(self, number: int, host: HostRecord) -> HostReport:
        return opened_untrusted(number, host.name, await self._post(host, {"do": "open", "host": number}))

    async def _probe(self, number: int, host: HostRecord, opened: Mapping[int, HostReport]) -> None:
        peers = [
            (segment, report.places[segment].address)
            for segment in opened[number].places
            for other, report in opened.items()
            if other != number and segment in report.places
        ]
        most = max(
            (sum(one in report.places for report in opened.values()) for one in opened[number].places), default=1
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._quietly, host, {"do": "probe", "hosts": most})
            nursery.start_soon(self._quietly, host, {"do": "ask", "peers": peers})

    async def _burst(self, turn: Sequence[tuple[int, str]], shares: Mapping[str, float]) -> None:
        async with trio.open_nursery() as nursery:
            for number, segment in turn:
                request = {"do": "burst", "segment": segment, "share": shares[segment]}
                nursery.start_soon(self._quietly, self.hosts[number], request)

    async def _quietly(self, host: HostRecord, request: Mapping[str, Any]) -> None:
        try:
            await self._post(host, request)
        except (ProcessError, UsageError) as error:
            self._note(host, error)

    def _note(self, host: HostRecord, error: PgmError) -> None:
        """Keep the first problem of a host."""
        self._problems.setdefault(host.name, ProcessError(error.message, remedy=error.remedy))

    async def _post(self, host: HostRecord, request: Mapping[str, Any]) -> dict[str, Any]:
        return await self.client.post(host.address, NETCHECK_PATH, {**request, "id": self._id})

    async def _each(
        self, hosts: Mapping[int, HostRecord], ask: Callable[[int, HostRecord], Awaitable[R]]
    ) -> dict[int, R]:
        """Ask all hosts at once, within bounds. Return the answers; hosts that fail become problems."""
        found: dict[int, R] = {}

        async def one(number: int, host: HostRecord) -> None:
            try:
                async with self._limit:
                    found[number] = await ask(number, host)
            except (ProcessError, UsageError) as error:
                self._note(host, error)

        async with trio.open_nursery() as nursery:
            for number, host in hosts.items():
                nursery.start_soon(one, number, host)
        return dict(sorted(found.items()))


def turns_of(opened: Mapping[int, HostReport], shares: Mapping[str, float]) -> list[list[tuple[int, str]]]:
    """Return the senders of bursts: turns with one sender for each segment, and one segment for each host."""
    left = [
        (number, place.segment)
        for number, report in opened.items()
        for place in report.places.values()
        if place.sends and shares.get(place.segment, 0.0) > 0
    ]
    turns: list[list[tuple[int, str]]] = []
    while left:
        turn: list[tuple[int, str]] = []
        for number, segment in left:
            if all(number != other and segment != taken for other, taken in turn):
                turn.append((number, segment))
        left = [one for one in left if one not in turn]
        turns.append(turn)
    return turns
