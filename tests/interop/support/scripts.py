"""Steps that tests repeat with a scene: send, wait for all receivers, end, compare."""

from __future__ import annotations

from collections.abc import Sequence

from tests.interop.support.peers import Scene
from tests.interop.support.pipes import Pipe

DESKS = ("desk-1", "desk-2")


def deliver(source: Pipe, receivers: Sequence[Pipe], sent: Sequence[bytes]) -> None:
    """Send messages and wait until every receiver has got that many more."""
    wanted = [len(receiver.messages) + len(sent) for receiver in receivers]
    source.put(sent)
    for receiver, count in zip(receivers, wanted, strict=True):
        receiver.until_messages(count)


def end_whole(scene: Scene, source: Pipe, receivers: Sequence[Pipe], sent: Sequence[bytes]) -> None:
    """End all processes; assert that each receiver has all messages after the greeting.

    The messages came in order and once, and no loss was reported.
    """
    scene.end(source, receivers)
    for receiver in receivers:
        assert receiver.messages == [b"hello", *sent], receiver.log
        assert not [line for line in receiver.said if "reset" in line or " lost " in line or " lost-" in line], (
            receiver.log
        )


def served(scene: Scene, repairer: str) -> int:
    """Return the repairs that a repairer has sent."""
    return scene.counters(repairer).get("rdata_packets", 0)
