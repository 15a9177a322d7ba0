"""End of a run: complete sessions, and only heartbeats on the wire."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pgm.core.effects import CloseCause, LossCause
from pgm.sim.applications import ReceiverApplication
from pgm.sim.delivery_check import DeliveryCheck
from pgm.sim.node import SimulatedNode
from pgm.sim.world import World
from pgm.wire.formats import Tsi, tsi_text

NOTHING: frozenset[LossCause] = frozenset()


def settle(world: World, *, within_ns: int, quiet_ns: int) -> int:
    """Run until `quiet_ns` of heartbeats; return the last activity, ns. Raises `InvariantBroken` after `within_ns`."""
    return world.run_until_quiet(world.now_ns + within_ns, quiet_ns=quiet_ns)


def check_complete(
    world: World, *, may_lose: Mapping[str, Collection[LossCause]] | None = None, cut_short: Collection[Tsi] = ()
) -> None:
    """Check that every running receiver has all data of every session, in order.

    The data counts from the opening of the session. Each receiver must also know that the session is over.

    `may_lose` lists for each receiver the causes of loss that the scenario explains. Sessions in `cut_short` lost their
    source; for them only the end must have been reported. Raises `InvariantBroken`.
    """
    for node in world.receivers:
        application = node.application
        if node.core is None or not isinstance(application, ReceiverApplication):
            continue
        allowed = frozenset((may_lose or {}).get(node.name, NOTHING))
        for stream in application.all_streams:
            _check_losses(node, stream, allowed)
        ports = {stream.data_port for stream in node.plan.streams}
        for tsi, ledger in world.ledgers.items():
            if ledger.data_port in ports:
                _check_end(node, application.streams.get(tsi), tsi, tsi in cut_short)


def _check_losses(node: SimulatedNode, stream: DeliveryCheck, allowed: frozenset[LossCause]) -> None:
    for cause, sqns in stream.lost.items():
        if cause not in allowed:
            node.fail(f"{sqns} sqns of {tsi_text(stream.tsi)} were reported lost: {cause}")


def _is_cut_off(node: SimulatedNode, stream: DeliveryCheck) -> bool:
    """Return whether a receiver could only report silence, and has reported it.

    That is so if drawn losses on its links took every packet since before the source closed. The FINs are then lost
    too, and the receiver cannot know how far the stream goes.
    """
    assert stream.ledger is not None
    silenced_ns = max(attachment.ingress.silenced_ns for attachment in node.attachments)
    return stream.closed is CloseCause.EXPIRED and silenced_ns < stream.ledger.closed_ns


def _check_end(node: SimulatedNode, stream: DeliveryCheck | None, tsi: Tsi, is_cut_short: bool) -> None:
    if stream is None:
        if not is_cut_short:
            node.fail(f"no packet of session {tsi_text(tsi)} arrived")
        return
    if is_cut_short:
        if stream.closed is None:
            node.fail(f"{tsi_text(tsi)} lost its source and was never closed")
        return
    assert stream.ledger is not None
    if not stream.is_accounted and not _is_cut_off(node, stream):
        position = stream.ledger.own(stream.next_sqn)
        node.fail(f"{tsi_text(tsi)} stands at {position} of {stream.ledger.end}, closed: {stream.closed}")
    if stream.closed not in (CloseCause.FIN, CloseCause.UNPROVEN, CloseCause.SILENT, CloseCause.EXPIRED):
        node.fail(f"{tsi_text(tsi)} is complete and closed: {stream.closed}")
