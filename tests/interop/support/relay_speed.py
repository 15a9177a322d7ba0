"""Speed of our relay between OpenPGM's source and receivers, compared with a bare forwarder.

Run it by `python -m tests.interop.support.relay_speed`.

Three hosts stand in a row, as `pgm bench` makes them: OpenPGM's source, a relay or forwarder, and OpenPGM's receivers.
The peers are the same programs with the same settings throughout, with the timers of OpenPGM's own examples. The search
finds for each middle host the highest rate without loss at any receiver. Then the relays carry the required share of
the forwarder's rate.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import trio

from deploy.bench.contender import Job
from deploy.bench.contenders.openpgm import OPENPGM
from deploy.bench.peer import Peer, running
from deploy.bench.place import ETHERNET_MTU, BenchNetwork, open_place
from deploy.bench.search import RateSearch
from deploy.bench.settings import allowed_buffer
from deploy.bench.tree import chain
from deploy.bench.trial import PeerResult, TrialResult, environment
from pgm.errors import ProcessError

SHARE = 0.8  # of the forwarder's rate
SIZE = 1400  # octets of a message, one packet each
_START_S = 30.0
_SPARE_S = 30.0
_NOTHING = {"messages": 0, "disordered": 0, "resets": 0, "first_ns": 0, "last_ns": 0}
_QUIET_S = 1.0
_BUFFER = 4 << 20
_RATE_TOLERANCE = 0.97  # of the rate asked for; a source below this share did not send at that rate
_QUIET_SHARE = 0.9  # minimum idle share of the machine before a trial
_LOOK_S = 0.3
_MOST_LOOKS = 40
_SOURCE = Path(__file__).with_name("forwarder.c")


@attrs.frozen
class Middle:
    """Relay or forwarder between source and receivers."""

    name: str
    command: tuple[str, ...]


def middles(place: BenchNetwork, folder: Path) -> dict[str, Middle]:
    """Return all candidates: forwarders of three kinds, and relays of two roles."""
    buffer = allowed_buffer(_BUFFER)
    seats = [place.group(0), str(place.port), place.seat(1, 0).address, place.group(1), place.seat(1, 1).address]
    where = (*seats, str(buffer))
    program = folder / "forwarder"
    subprocess.run(["gcc", "-O2", "-pthread", "-o", str(program), str(_SOURCE)], check=True)
    python = (sys.executable, "-m")
    found = [
        Middle("forwarder", (*python, "tests.interop.support.forwarder", "single", *where)),
        Middle("forwarder-trains", (*python, "tests.interop.support.forwarder", "trains", *where)),
        Middle("forwarder-c", (str(program), *where)),
    ]
    for role in ("aggregator", "repairer"):
        file = chain(folder, place, role, buffer)
        found.append(Middle(role, (*python, "deploy.bench.peers.node", str(file), "relay")))
    return {one.name: one for one in found}


def _idle_and_all() -> tuple[int, int]:
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


async def until_quiet() -> None:
    """Wait, for a bounded time, until no other process uses this machine.

    Processor time of other processes would appear as a limit of the relay.
    """
    idle, whole = _idle_and_all()
    for _ in range(_MOST_LOOKS):
        await trio.sleep(_LOOK_S)
        idle_before, whole_before = idle, whole
        idle, whole = _idle_and_all()
        if idle - idle_before >= _QUIET_SHARE * (whole - whole_before):
            return
    _say("  other processes use this machine, so the next figures mean little")


@attrs.define
class Trials:
    """Trials in one network: four processes with two receivers."""

    place: BenchNetwork
    folder: Path
    seconds: float
    receivers: int
    waits_for_quiet: bool = True
    cpu_us: dict[str, float] = attrs.field(factory=dict)  # of the middle host, microseconds a packet, in the last trial

    @asynccontextmanager
    async def _peer(self, end: str, job: Job, group: int) -> AsyncIterator[Peer]:
        command = [word for word in OPENPGM[1].command(end, job) if not word.startswith("group=")]
        command.append(f"group={self.place.group(group)}")
        host = 0 if end == "send" else self.place.hosts - 1
        async with running(f"OpenPGM ({end})", self.place.wrap(host, command), environment()) as peer:
            await peer.until("ready", _START_S)
            yield peer

    async def run(self, middle: Middle, rate: float) -> TrialResult:
        """Run one trial; return the result of the receiver with the fewest messages. Raises `ProcessError`."""
        buffer = allowed_buffer(_BUFFER)
        job = Job(self.place, SIZE, rate=rate, seconds=self.seconds, rcvbuf=buffer, sndbuf=buffer, quiet_s=_QUIET_S)
        settings = environment() | {"PGM_RUNTIME_DIR": str(self.folder)}
        async with AsyncExitStack() as stack:
            wrapped = self.place.wrap(1, middle.command)
            between = await stack.enter_async_context(running(middle.name, wrapped, settings))
            await between.until("ready", _START_S)
            desks = [await stack.enter_async_context(self._peer("recv", job, 1)) for _ in range(self.receivers)]
            source = await stack.enter_async_context(self._peer("send", job, 0))
            for desk in desks:
                await desk.until("hears", _START_S)
            if self.waits_for_quiet:
                await until_quiet()
            cpu_before, drops_before = between.usage.cpu_s, self._drops()
            await source.tell("go")
            sent = await source.until("sent", job.seconds * 2 + _SPARE_S)
            self.cpu_us[middle.name] = (between.usage.cpu_s - cpu_before) / max(1, sent["messages"]) * 1e6
            for desk in desks:
                await desk.tell(f"expect {sent['messages']}")
            got = [await self._result(desk) for desk in desks]
            worst = min(got, key=lambda one: one["messages"])
            return TrialResult(
                size=SIZE,
                rate=rate,
                sent=sent["messages"],
                received=worst["messages"],
                disordered=sum(one["disordered"] for one in got),
                damaged=sum(one["resets"] for one in got),
                seconds=max(one["last_ns"] - one["first_ns"] for one in got) / 1e9,
                send_s=sent["seconds"],
                sender=PeerResult(sent, 0.0, 0),
                receiver=PeerResult(worst, 0.0, 0),
                kernel_drops=self._drops() - drops_before,
                datagrams=0,
            )

    async def _result(self, desk: Peer) -> dict[str, int]:
        """Return the result that a receiver reports.

        The result is empty if the receiver still runs long after the end of the source.
        """
        try:
            return await desk.until("result", self.seconds * 4 + _QUIET_S)
        except ProcessError:
            return _NOTHING

    def _drops(self) -> int:
        """Return the datagrams dropped by full sockets in the middle or at a receiver."""
        return sum(self.place.udp_statistics(host)["RcvbufErrors"] for host in range(1, self.place.hosts))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def lossless(trials: Trials, middle: Middle, runs: int, precision: float) -> float:
    """Return the highest rate without loss in messages a second; 0 if every rate loses."""

    async def run(rate: float) -> TrialResult:
        outcome = await trials.run(middle, rate)
        if outcome.is_whole and outcome.kernel_drops:  # lost on the way and repaired
            outcome = attrs.evolve(outcome, received=outcome.sent - 1)
        flaw = outcome.flaw or "whole"
        _say(f"  {middle.name}, {rate:,.0f} asked: {outcome.messages_per_s:,.0f} a second, {flaw}")
        return outcome

    found = await RateSearch(run, runs, precision).maximum()
    return found.median.messages_per_s if found.median is not None else 0.0


async def measure(asked: argparse.Namespace) -> bool:
    """Search, then try the relays at the share of the forwarder; return whether they lost nothing."""
    holds = True
    with (
        tempfile.TemporaryDirectory(prefix="pgm-relay-speed-") as folder,
        open_place("namespaces", ETHERNET_MTU, 3) as place,
    ):
        known = middles(place, Path(folder))
        trials = Trials(place, Path(folder), asked.seconds, asked.receivers)
        maxima = {}
        for name in asked.middles:
            maxima[name] = await lossless(trials, known[name], asked.runs, asked.precision)
            cpu = trials.cpu_us[name]
            print(
                f"{name:17} {maxima[name]:9,.0f} messages a second lossless, {cpu:.1f} us of CPU a packet", flush=True
            )
        wanted = SHARE * maxima.get("forwarder", asked.rate)
        for name in asked.middles:
            if name.startswith("forwarder"):
                continue
            for _ in range(asked.runs):
                outcome = await trials.run(known[name], wanted)
                is_good = outcome.is_whole and outcome.offered_per_s >= _RATE_TOLERANCE * wanted
                holds = holds and is_good
                said = outcome.flaw or "whole"
                print(
                    f"{name:17} at {wanted:9,.0f}: {outcome.messages_per_s:9,.0f} a second, {said}, "
                    f"{outcome.kernel_drops} dropped by full sockets",
                    flush=True,
                )
    return holds


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("middles", nargs="*", default=["forwarder", "aggregator", "repairer"])
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each trial")
    parser.add_argument("--runs", type=int, default=3, help="lossless runs required in a row")
    parser.add_argument("--receivers", type=int, default=2)
    parser.add_argument("--precision", type=float, default=0.05)
    parser.add_argument(
        "--rate",
        type=float,
        default=10_000.0,
        help="messages a second of the forwarder, if the forwarder is not measured",
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Return 1 if a relay lost a packet at the share."""
    return 0 if trio.run(measure, parsed(sys.argv[1:])) else 1


if __name__ == "__main__":
    sys.exit(main())
