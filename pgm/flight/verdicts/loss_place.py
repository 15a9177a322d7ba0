"""Place where a packet was lost: a link, a socket, a budget, or the application."""

from __future__ import annotations

import attrs

from pgm.flight.record import FlightKind
from pgm.flight.verdicts.life import PacketLife, PacketState, Presence
from pgm.flight.verdicts.view import FlightEvent, NodeFlight
from pgm.units import MILLISECOND

_AT_ONCE_NS = 2 * MILLISECOND  # a drop of the node's own socket shows with the next packet, as the gap does
_SOCKET_CAUSES = {"socket_drops": "socket-buffer", "injected_losses": "injected", "truncated_reads": "truncated"}
_SEND_CAUSES = ("send_errors", "sends_dropped")

# cause of a loss without a gap -> kind of the place, text
_LOCAL_LOSSES = {
    "overrun": ("application", "the application of {node} was too slow: its queue and its receive window were full"),
    "overload": ("receive-window", "the receive window of {node} was full of packets behind gaps"),
    "resync": ("skipped", "{node} skipped it after another loss, as its application wants (on_loss)"),
    "fragment": ("fragment", "it arrived at {node}, but another packet of its message is lost"),
    "malformed": ("malformed", "it arrived at {node}, and does not have the framing of the stream"),
    "unproved": ("unproved", "it arrived at {node}, but no proof of its source came"),
    "forged": ("forged", "other packets than those of the source came to {node} in its place"),
    "sealed": ("sealed", "it arrived at {node}, which has no secret to decrypt it"),
    "conflict": ("conflict", "different copies of it came to {node}"),
    "jump": ("jump", "the stream jumped far ahead at {node}"),
}

# kind -> meaning, remedy
LOSS_KINDS: dict[str, tuple[str, str]] = {
    "none": ("The node had the packet in order, or no node missed it.", ""),
    "link": ("The link from the segment to the node lost it: other listeners of the segment got it.", "check cable, switch port and driver of that link (ethtool -S), and pgm doctor on both hosts"),
    "segment": ("No listener of the segment got it from the node that feeds the segment.", "check the sender's interface and the switch: no listener of the segment got the packet"),
    "socket-buffer": ("The kernel of the node dropped it: the receive buffer was full.", "give the process more processor time, or raise so_rcvbuf (pgm doctor shows the kernel's limit)"),
    "send-failed": ("The kernel of the sender refused packets at that time.", "look at the interface of the sender: the kernel refused its packets"),
    "injected": ("The node dropped it on purpose.", "losses are injected there on purpose: loss in the topology file, or pgm ctl set loss="),
    "truncated": ("The node could not read it whole.", "lower max_tpdu: packets are larger than the reads"),
    "reordered": ("The packet was not lost. It came behind later packets, before any NAK.", ""),
    "application": ("It arrived. The application was too slow, and queue and window were full.", "take messages faster, subscribe to fewer, or raise inbox_bytes"),
    "receive-window": ("The receive window was full of packets behind gaps.", "raise rxw_bytes or rxw_gaps, or mend the link"),
    "skipped": ("The receiver skipped it after another loss, as its application wants.", ""),
    "fragment": ("It arrived, and another packet of its message is lost.", "explain the other packet of the message"),
    "malformed": ("It arrived, and has not the framing of the stream.", "give the source and its receivers the same framing"),
    "unproved": ("It arrived, and no proof of its source came.", "explain the packets around it"),
    "forged": ("Other packets than those of the source came.", "find the sender: forged-packets events name it"),
    "sealed": ("It arrived, and the node has no secret to decrypt it.", "see the event closed-no_secret"),
    "conflict": ("Different copies of it came.", "find the sender of false packets"),
    "jump": ("The stream jumped far ahead at the node.", "check whether the source restarted under the same TSI"),
    "node": ("The node reported it as lost for another cause.", "see docs/reference/events.md for the cause"),
    "upstream": ("It was lost above the node, where no recorder was reached.", "ask the hosts above too: pgm explain --fleet"),
    "earlier": ("The recorder begins behind it, or the node joined later.", "raise flight_bytes"),
    "not-sent": ("The node has not come that far.", ""),
    "unknown": ("The recorders do not tell.", ""),
}  # fmt: skip


@attrs.frozen
class Hop:
    """One segment on the way of the packet, with the node that fed it and the node that took it."""

    segment: str
    feeder: str
    listener: str
    passed: bool


@attrs.frozen
class LossPlace:
    """Verdict: `kind` is stable, see docs/reference/flight.md. `node` lost the packet, or is behind the link that did."""

    kind: str
    text: str
    node: str = ""
    segment: str = ""
    feeder: str = ""
    had: tuple[str, ...] = ()  # other listeners of the segment that got the packet
    missed: tuple[str, ...] = ()
    path: tuple[Hop, ...] = ()
    is_certain: bool = True

    @property
    def remedy(self) -> str:
        """Return what to do about it; empty if there is nothing to do."""
        return LOSS_KINDS[self.kind][1]


def place_of_loss(life: PacketLife, target: NodeFlight) -> LossPlace:
    """Return where the packet was lost on its way to a node."""
    path: list[Hop] = []
    place = _place(life, target, path, {target.name})
    return attrs.evolve(place, path=tuple(reversed(path)))


def _place(life: PacketLife, node: NodeFlight, path: list[Hop], seen: set[str]) -> LossPlace:
    state = life.state(node)
    if state.presence is not Presence.MISSED:
        _follow_up(life, node, path, seen)
        return _without_gap(state)
    if not node.ups:
        return LossPlace("unknown", f"{node.name} feeds the tree, and missed the packet itself", node.name)
    segment = node.ups[0]
    feeder = life.view.feeder_of(segment, life.tsi)
    path.append(Hop(segment, feeder.name if feeder is not None else "", node.name, passed=False))
    if feeder is None:
        text = f"before {node.name}: no recorder of the node that feeds segment {segment} was reached"
        return LossPlace("upstream", text, node.name, segment, is_certain=False)
    above = life.state(feeder)
    if above.presence is Presence.MISSED and feeder.name not in seen:
        return _place(life, feeder, path, seen | {feeder.name})
    _follow_up(life, feeder, path, seen)
    return _on_link(life, feeder, above, segment, node, state)


def _follow_up(life: PacketLife, node: NodeFlight, path: list[Hop], seen: set[str]) -> None:
    """Add the hops above a node that had the packet."""
    while node.ups:
        feeder = life.view.feeder_of(node.ups[0], life.tsi)
        path.append(Hop(node.ups[0], feeder.name if feeder is not None else "", node.name, passed=True))
        if feeder is None or feeder.name in seen:
            return
        seen = seen | {feeder.name}
        node = feeder


def _without_gap(state: PacketState) -> LossPlace:
    name = state.node.name
    if state.outcome == "lost":
        kind, text = _LOCAL_LOSSES.get(state.cause, ("node", "{node} reported it as lost: " + state.cause))
        return LossPlace(kind, text.format(node=name), name)
    if state.presence in (Presence.HAD, Presence.SENT):
        return LossPlace("none", f"{name} {'sent it' if state.presence is Presence.SENT else 'got it in order'}", name)
    if state.presence is Presence.EARLIER:
        return LossPlace(
            "earlier", f"the recorder of {name} begins behind it, or {name} joined later", name, is_certain=False
        )
    if state.presence is Presence.NOT_YET:
        return LossPlace("not-sent", f"{name} has not come that far", name)
    return LossPlace("unknown", f"{name} has recorded nothing of it", name, is_certain=False)


def _on_link(
    life: PacketLife, feeder: NodeFlight, above: PacketState, segment: str, node: NodeFlight, state: PacketState
) -> LossPlace:
    if state.outcome == "late" and not life.events(node, FlightKind.NAK_OUT, FlightKind.NCF_IN):
        took_ms = state.took_ns / MILLISECOND
        return LossPlace(
            "reordered",
            f"not lost: it overtook no NAK, and came {took_ms:.1f} ms behind later packets on segment {segment}",
            node.name,
            segment,
            feeder.name,
        )
    drop = _socket_drop(node, state)
    if drop is not None:
        kind = _SOCKET_CAUSES[drop.cause]
        what = {
            "socket-buffer": f"the receive buffer of {node.name} was full: its kernel dropped {drop.value:,} packets just before",
            "injected": f"{node.name} dropped {drop.value:,} packets on purpose, as its loss injector wants",
            "truncated": f"{node.name} could not read {drop.value:,} packets whole",
        }[kind]
        return LossPlace(kind, what, node.name, segment, feeder.name)
    failed = _failed_send(feeder, above)
    others = [
        life.state(one) for one in life.view.listeners_of(segment, life.tsi) if one is not node and one is not feeder
    ]
    had = tuple(one.node.name for one in others if one.presence is Presence.HAD)
    missed = tuple(
        one.node.name for one in others if one.presence is Presence.MISSED and _socket_drop(one.node, one) is None
    )
    is_certain = above.presence in (Presence.SENT, Presence.HAD) and not above.is_uncertain
    if failed is not None and not had:
        text = f"the kernel of {feeder.name} refused {failed.value:,} packets for segment {segment} at that time ({failed.cause})"
        return LossPlace("send-failed", text, feeder.name, segment, feeder.name, had, missed)
    is_leg = any(one.segment == segment and one.is_leg for one in node.places)
    if missed and not had and not is_leg:
        text = f"on segment {segment}, between {feeder.name} and all of its listeners: {_names((node.name, *missed))} missed it, none got it"
        return LossPlace("segment", text, node.name, segment, feeder.name, had, missed, is_certain=is_certain)
    text = f"on the link from segment {segment} to {node.name}"
    text += (
        f": {_names(had)} of the same segment got it"
        if had
        else f": no other listener of the segment is known; {feeder.name} sent it"
    )
    return LossPlace("link", text, node.name, segment, feeder.name, had, missed, is_certain=is_certain)


def _names(names: tuple[str, ...], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _socket_drop(node: NodeFlight, state: PacketState) -> FlightEvent | None:
    """Return the drop of a node's own socket that came with its gap, or shortly before a relay told of the gap."""
    waits = node.role == "aggregator" and 0 < state.after_ns < state.gap_ns  # for packets that came out of order
    begin_ns = (state.after_ns if waits else state.gap_ns) - _AT_ONCE_NS
    for event in node.events(None, None, (FlightKind.DROPPED,)):
        if event.cause in _SOCKET_CAUSES and begin_ns <= event.time_ns <= state.gap_ns + _AT_ONCE_NS:
            return event
    return None


def _failed_send(feeder: NodeFlight, above: PacketState) -> FlightEvent | None:
    """Return the failure of sends that may have included the packet."""
    for event in feeder.events(None, None, (FlightKind.DROPPED,)):
        is_then = event.time_ns >= above.after_ns and event.time_ns - event.since_ns <= above.by_ns
        if event.cause in _SEND_CAUSES and is_then:
            return event
    return None
