"""The end of a run: everybody complete, or told why not, and nothing on the wire but heartbeats."""

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
    """Run until for `quiet_ns` there was nothing but heartbeats; returns the instant of the last activity.

    Raises `InvariantBroken` if that takes longer than `within_ns` from now.
    """
    return world.run_until_quiet(world.now_ns + within_ns, quiet_ns=quiet_ns)


def check_complete(
    world: World,
    *,
    may_lose: Mapping[str, Collection[LossCause]] | None = None,
    cut_short: Collection[Tsi] = (),
) -> None:
    """Every running receiver has everything of every session since it was opened, in order, and knows that it is over.

    `may_lose` names, per receiver, causes of loss that the scenario explains. Sessions in `cut_short` lost their source: of
    those only the end must have been told. Raises `InvariantBroken`.
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
    """Whether a receiver can only say that it hears nothing any more, and has said so.

    That is so where the losses that were drawn for its links have taken every packet since before the source closed, each
    FIN too: nobody has told it how far the stream goes.
    """
    assert stream.ledger is not None
    silenced_ns = max(one.ingress.silenced_ns for one in node.attachments)
    return stream.closed is CloseCause.EXPIRED and silenced_ns < stream.ledger.closed_ns


def _check_end(node: SimulatedNode, stream: DeliveryCheck | None, tsi: Tsi, is_cut_short: bool) -> None:
    if stream is None:
        if not is_cut_short:
            node.fail(f"never heard of {tsi_text(tsi)}")
        return
    if is_cut_short:
        if stream.closed is None:
            node.fail(f"{tsi_text(tsi)} lost its source and was not closed")
        return
    assert stream.ledger is not None
    if not stream.is_accounted and not _is_cut_off(node, stream):
        stands = stream.ledger.own(stream.next_sqn)
        node.fail(f"{tsi_text(tsi)} stands at {stands} of {stream.ledger.end}, closed: {stream.closed}")
    if stream.closed not in (CloseCause.FIN, CloseCause.SILENT, CloseCause.EXPIRED):
        node.fail(f"{tsi_text(tsi)} is complete and closed: {stream.closed}")
