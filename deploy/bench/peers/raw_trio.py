"""Plain UDP sockets under trio, which show the scheduler's share of a round trip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from deploy.bench.peers.control import QUIET_S, Control, run_end
from deploy.bench.peers.loop_control import until_over, until_word
from deploy.bench.peers.messages import pattern
from deploy.bench.peers.raw import listening_socket, sending_socket
from deploy.bench.peers.round_trips import RoundTrips, TripResult

_READ_OCTETS = 65_536


def _ends(job: Mapping[str, Any], *, is_ping: bool) -> tuple[trio.socket.SocketType, trio.socket.SocketType]:
    seat = "sender" if is_ping else "receiver"
    out, back = sending_socket(job, seat, 0 if is_ping else 1), listening_socket(job, seat, 1 if is_ping else 0)
    return trio.socket.from_stdlib_socket(out), trio.socket.from_stdlib_socket(back)


async def ping(control: Control, job: Mapping[str, Any]) -> None:
    """Send requests and measure the times to their answers."""
    out, back = _ends(job, is_ping=True)
    control.say("ready")
    await until_word(control, "go")
    payload = pattern(job["size"]).tobytes()
    trips = RoundTrips(job["seconds"])
    while not trips.are_over:
        trips.begin()
        await out.send(payload)
        with trio.move_on_after(QUIET_S) as scope:
            await back.recv(_READ_OCTETS)
        trips.end(TripResult.NO if scope.cancelled_caught else TripResult.YES)
    control.say("result", **trips.result())
    await until_over(control)


async def pong(control: Control, job: Mapping[str, Any]) -> None:
    """Answer each request."""
    out, back = _ends(job, is_ping=False)

    async def answer() -> None:
        while True:
            await out.send(await back.recv(_READ_OCTETS))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        control.say("ready")
        await until_over(control)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    run_end({"ping": ping, "pong": pong})
