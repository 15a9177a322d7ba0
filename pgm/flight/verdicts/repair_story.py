"""Story of a repair: who asked whom when, who answered, how long each step took, and why it was late or never came."""

from __future__ import annotations

import attrs

from pgm.core.recovery.outstanding_limit import LEAST_SHARE
from pgm.flight.record import SHEDDING, FlightKind
from pgm.flight.verdicts.life import PacketLife, PacketState, Presence
from pgm.flight.verdicts.view import FlightEvent, NodeFlight
from pgm.parameters import ROWS
from pgm.units import MILLISECOND, SECOND
from pgm.wire.formats import Nla

_TOLERANCE_NS = MILLISECOND
_MOST_DEPTH = 8  # tiers
_MOST_WAIT_NS = 1000 * SECOND  # of a request without an end
_LEAST_OUTSTANDING = int(ROWS["nak_max_outstanding"].low)
_BUDGETS = frozenset(SHEDDING) - {"repairs_ignored"}

# kind of a step or of a verdict -> meaning, remedy
STEP_KINDS: dict[str, tuple[str, str]] = {
    "back-off": ("The node waited for reordering and for its back-off.", ""),
    "suppressed": ("Another node had asked already.", ""),
    "asked": ("The node asked its parent, which confirmed.", ""),
    "repaired": ("The repair came.", ""),
    "came-late": ("The packet came as ODATA.", ""),
    "mended": ("A relay got the packet, and sent it down as ODATA.", ""),
    "gave-up": ("The node gave up.", "see the cause: docs/reference/events.md"),
    "waiting-for-room": ("The node held its request back: more packets were missing than it may ask for at once.", "too many packets were missing at once: raise nak_max_outstanding, or mend the link"),
    "asked-late": ("The timer of the node had ended, and its request left later.", "give the process of the node more processor time"),
    "nak-lost": ("The request did not reach the parent.", "requests get lost as data do: mend the link from the node to its parent"),
    "nak-dropped": ("The receive buffer of the parent was full.", "the socket of the parent was full: give it processor time, or raise so_rcvbuf"),
    "nak-shed": ("A budget of the parent refused the request; `cause` is its counter.", "a budget of the parent refused the request: put a repairer or aggregator in between, or raise the budget"),
    "parent-down": ("The parent did not run.", "the parent did not run: start it, or give the node another parent"),
    "ncf-lost": ("The parent confirmed, and the confirmation was lost.", "confirmations get lost as data do: mend the link from the parent to the node"),
    "unconfirmed": ("The parent did not confirm, or its recorder was not reached.", "look at the parent: pgm status --detail"),
    "parent-lacked": ("The parent lacked the packet too, and had to ask for it.", "the parent lacked the packet too, and had to ask for it: put a repairer nearer to the loss"),
    "rdata-lost": ("The parent sent the repair, and it was lost.", "repairs get lost as data do: mend the link from the parent to the node"),
    "repair-shed": ("A budget of the parent dropped the repair; `cause` is its counter.", "a budget of the parent dropped the repair: raise rdata_share or child_nak_rte, or add a repairer"),
    "unanswered": ("The parent promised a repair and sent none in time.", "look at the parent: pgm status --detail"),
    "none": ("No repair was needed.", ""),
    "in-time": ("The repair came, and nothing failed on its way.", ""),
    "pending": ("The node still waits.", ""),
}  # fmt: skip


@attrs.frozen
class Step:
    """One step of the repair, on the common time line. `kind` is stable, see docs/reference/flight.md."""

    kind: str
    node: str
    text: str
    from_ns: int
    to_ns: int
    other: str = ""
    failed: bool = False
    cause: str = ""  # the counter of a budget

    @property
    def took_ns(self) -> int:
        """Time that the step took."""
        return max(0, self.to_ns - self.from_ns)


@attrs.frozen
class RepairVerdict:
    """Why the repair took as long as it did, or never came."""

    kind: str
    text: str
    node: str = ""
    other: str = ""
    cause: str = ""

    @property
    def remedy(self) -> str:
        """Return what to do about it; empty if there is nothing to do."""
        return STEP_KINDS[self.kind][1]


def story_of_repair(life: PacketLife, node: NodeFlight) -> list[Step]:
    """Return the steps of the recovery at a node, with those of the nodes that it had to wait for."""
    return _Story(life, {node.name}).steps(node)


@attrs.frozen(eq=False)
class _Attempt:
    """One request, own or of another node, and what may belong to it: from `from_ns` to `until_ns`."""

    node: NodeFlight
    state: PacketState
    mark: FlightEvent
    parent: NodeFlight | None
    name: str  # of the parent
    from_ns: int
    until_ns: int


@attrs.define(eq=False)
class _Story:
    """Story under way. `told` are the nodes whose own recovery has been told."""

    life: PacketLife
    told: set[str]

    def steps(self, node: NodeFlight) -> list[Step]:
        """Return the steps of one node."""
        state = self.life.state(node)
        naks = self.life.events(node, FlightKind.NAK_OUT)
        start_ns = state.gap_ns or (naks[0].time_ns if naks else 0)
        if not start_ns:
            return []
        end_ns = state.end_ns
        marks = [event for event in naks if event.time_ns >= start_ns - _TOLERANCE_NS]
        marks += [event for event in self.life.events(node, FlightKind.SUPPRESSED) if event.time_ns >= start_ns]
        marks.sort(key=lambda event: event.time_ns)
        steps: list[Step] = []
        at_ns = start_ns
        for index, mark in enumerate(marks):
            if mark.time_ns > at_ns:
                steps.append(self._wait(node, at_ns, mark, is_first=index == 0))
            next_ns = marks[index + 1].time_ns if index + 1 < len(marks) else end_ns or mark.time_ns + _MOST_WAIT_NS
            steps += self._attempt(node, state, mark, next_ns)
            at_ns = max(mark.time_ns, steps[-1].to_ns if steps else 0)
        if state.outcome in ("given up", "lost") and end_ns:
            text = f"{node.name} gave up: {state.cause or 'all retries have ended'}"
            steps.append(Step("gave-up", node.name, text, at_ns, end_ns, failed=True, cause=state.cause))
        elif state.outcome == "late" and not marks:
            steps.append(
                Step(
                    "came-late",
                    node.name,
                    f"ODATA of {state.source or 'the feeder'} came to {node.name}",
                    start_ns,
                    end_ns,
                    state.source,
                )
            )
        if state.outcome in ("late", "mended") or not marks:
            steps = [*self._of_feeder(node, state), *steps]
        return steps

    def _of_feeder(self, node: NodeFlight, state: PacketState) -> list[Step]:
        """Return the steps of the relay above, if it lacked the packet as well."""
        if not node.ups:
            return []
        feeder = self.life.view.feeder_of(node.ups[0], self.life.tsi)
        if feeder is None or feeder.name in self.told or self.life.state(feeder).presence is not Presence.MISSED:
            return []
        return self._of(feeder)

    def _of(self, node: NodeFlight) -> list[Step]:
        if node.name in self.told or len(self.told) > _MOST_DEPTH:
            return []
        self.told.add(node.name)
        return self.steps(node)

    def _wait(self, node: NodeFlight, at_ns: int, mark: FlightEvent, *, is_first: bool) -> Step:
        took_ns = mark.time_ns - at_ns
        allowed_ns = 2 * (node.timer("reorder_ivl") + node.timer("nak_bo_ivl")) + 5 * MILLISECOND
        if node.timer("nak_bo_ivl") and took_ns > allowed_ns:
            missing = self.life.missing_at(node, mark.time_ns)
            if missing < LEAST_SHARE * max(node.timer("nak_max_outstanding"), _LEAST_OUTSTANDING):
                text = f"{node.name} asked late: its process did not run when its timer ended"
                return Step("asked-late", node.name, text, at_ns, mark.time_ns, failed=True)
            text = (
                f"{node.name} held its request back: {missing:,} packets were missing, more than it may ask for at once"
            )
            return Step("waiting-for-room", node.name, text, at_ns, mark.time_ns, failed=True)
        what = "waited for reordering, and backed off" if is_first else "backed off again"
        return Step("back-off", node.name, f"{node.name} {what}", at_ns, mark.time_ns)

    def _attempt(self, node: NodeFlight, state: PacketState, mark: FlightEvent, next_ns: int) -> list[Step]:
        """Return the steps of one request, up to the next one or the end."""
        own = [event for event in self.life.events(node) if mark.time_ns <= event.time_ns <= next_ns + 1]
        ncf = next((event for event in own if event.kind is FlightKind.NCF_IN), None)
        timeout = next(
            (event for event in own if event.kind in (FlightKind.NCF_TIMEOUT, FlightKind.RDATA_TIMEOUT)), None
        )
        end_ns = state.end_ns if state.end_ns and state.end_ns <= next_ns + 1 else 0
        is_own = mark.kind is FlightKind.NAK_OUT
        address = mark.peer if is_own else ncf.peer if ncf is not None else ""
        parent = self.life.view.node_at(address, mark.segment) if address else None
        name = parent.name if parent is not None else address or "another node"
        attempt = _Attempt(node, state, mark, parent, name, mark.time_ns - _TOLERANCE_NS, next_ns + _TOLERANCE_NS)
        if is_own:
            first = self._request(attempt, ncf, timeout)
            if ncf is None and first.failed and not end_ns:
                return [first]
        else:
            text = f"another node had asked {name} already, so {node.name} did not"
            first = Step("suppressed", node.name, text, mark.time_ns, mark.time_ns, name)
        after_ns = ncf.time_ns if ncf is not None else mark.time_ns
        if end_ns and not state.is_lost:
            return [first, *self._arrival(attempt, after_ns, end_ns)]
        stop_ns = end_ns or (timeout.time_ns if timeout is not None else next_ns)
        return [first, *self._lack(attempt, after_ns, stop_ns)]

    def _request(self, attempt: _Attempt, ncf: FlightEvent | None, timeout: FlightEvent | None) -> Step:
        node, nak, name = attempt.node.name, attempt.mark, attempt.name
        if ncf is not None:
            return Step("asked", node, f"{node} asked {name}, which confirmed", nak.time_ns, ncf.time_ns, name)
        to_ns = timeout.time_ns if timeout is not None else nak.time_ns
        kind, why, cause = self._fate_of_request(attempt)
        text = f"{node} asked {name}, and no confirmation came: {why}"
        return Step(kind, node, text, nak.time_ns, to_ns, name, failed=True, cause=cause)

    def _fate_of_request(self, attempt: _Attempt) -> tuple[str, str, str]:
        """Return kind, reason and budget of a request without confirmation."""
        node, parent, nak = attempt.node, attempt.parent, attempt.mark
        if parent is None:
            return "unconfirmed", "its recorder was not reached", ""
        # a late parent reads the request long behind nak_rpt_ivl; what comes later belongs to the next request
        window = (attempt.from_ns, attempt.until_ns - 2 * _TOLERANCE_NS)
        own = {place.address for place in node.places}
        shed = self._shed(parent, window, own)
        if shed is not None:
            return "nak-shed", f"a budget of {parent.name} refused it ({shed.cause})", shed.cause
        if not any(event.peer in own for event in self._within(parent, window, FlightKind.NAK_IN)):
            until_ns = min(attempt.until_ns, nak.time_ns + max(node.timer("nak_rpt_ivl"), 50 * MILLISECOND))
            return self._fate_on_the_way(parent, nak, (attempt.from_ns, until_ns))
        if self._within(parent, window, FlightKind.NCF_OUT):
            return "ncf-lost", f"{parent.name} confirmed, and the confirmation was lost on its way", ""
        return "unconfirmed", f"{parent.name} got the request and did not confirm it", ""

    def _fate_on_the_way(self, parent: NodeFlight, nak: FlightEvent, window: tuple[int, int]) -> tuple[str, str, str]:
        """Return kind, reason and counter of a request that its parent has not recorded."""
        until_ns = window[1] + parent.timer("flight_sample_ivl")
        for event in parent.events(None, None, (FlightKind.DROPPED,)):
            if event.cause == "socket_drops" and window[0] <= event.time_ns <= until_ns:
                text = f"the receive buffer of {parent.name} was full ({event.value:,} packets dropped)"
                return "nak-dropped", text, event.cause
        first_ns, last_ns = parent.span_ns
        if not first_ns <= nak.time_ns <= last_ns or self._restarted(parent, nak.time_ns):
            return "parent-down", f"{parent.name} did not run", ""
        return "nak-lost", f"the request never reached {parent.name}", ""

    def _restarted(self, parent: NodeFlight, at_ns: int) -> bool:
        """Return whether a parent began anew after an instant, and had recorded nothing for long before that."""
        begins = [event.time_ns for event in parent.events(None, None, (FlightKind.BEGAN,)) if event.time_ns > at_ns]
        if not begins:
            return False
        before = [event.time_ns for event in parent.events(self.life.tsi, None) if event.time_ns < begins[0]]
        return not before or before[-1] < at_ns

    def _within(self, node: NodeFlight, window: tuple[int, int], *kinds: FlightKind) -> list[FlightEvent]:
        return [event for event in self.life.events(node, *kinds) if window[0] <= event.time_ns <= window[1]]

    def _shed(self, parent: NodeFlight, window: tuple[int, int], peers: set[Nla]) -> FlightEvent | None:
        """Return a budget of a parent that a request of these addresses met."""
        sheds = self._within(parent, window, FlightKind.SHED)
        return next((event for event in sheds if event.peer in peers and event.cause in _BUDGETS), None)

    def _lacked(self, parent: NodeFlight, at_ns: int) -> bool:
        """Return whether a parent lacked the packet when it was asked."""
        state = self.life.state(parent)
        if state.presence is Presence.MISSED:
            return state.gap_ns <= at_ns + _TOLERANCE_NS and not 0 < state.end_ns < at_ns - _TOLERANCE_NS
        return any(event.time_ns >= at_ns - _TOLERANCE_NS for event in self.life.events(parent, FlightKind.NAK_OUT))

    def _of_parent(self, attempt: _Attempt, at_ns: int, until_ns: int) -> list[Step]:
        """Return the steps of a parent that had to ask for the packet itself, as far as the node waited for them."""
        parent = attempt.parent
        steps = self._of(parent) if parent is not None and self._lacked(parent, at_ns) else []
        steps = [attrs.evolve(step, to_ns=min(step.to_ns, until_ns)) for step in steps if step.from_ns < until_ns]
        if parent is None or not steps:
            return []
        has_missed = self.life.state(parent).presence is Presence.MISSED
        text = f"{parent.name} {'lacked the packet as well' if has_missed else 'did not keep the packet, and asked for it'}"
        first = Step("parent-lacked", parent.name, text, at_ns, steps[-1].to_ns, attempt.node.name, failed=True)
        return [first, *steps]

    def _arrival(self, attempt: _Attempt, after_ns: int, end_ns: int) -> list[Step]:
        """Return the steps from the confirmation to the repair."""
        state, node = attempt.state, attempt.node.name
        source = state.source or attempt.name
        kind = {"late": "came-late", "mended": "mended"}.get(state.outcome, "repaired")
        what = "the repair" if kind == "repaired" else "ODATA"
        steps = self._of_parent(attempt, after_ns, end_ns)
        begin_ns = min(end_ns, max(after_ns, steps[-1].to_ns)) if steps else after_ns
        return [*steps, Step(kind, node, f"{what} of {source} came to {node}", begin_ns, end_ns, source)]

    def _lack(self, attempt: _Attempt, after_ns: int, stop_ns: int) -> list[Step]:
        """Return the steps from the confirmation to the end of the wait for a repair that did not come."""
        node, parent, name = attempt.node.name, attempt.parent, attempt.name
        if parent is None:
            text = f"no repair came of {name}, whose recorder was not reached"
            return [Step("unanswered", node, text, after_ns, stop_ns, name, failed=True)]
        steps = self._of_parent(attempt, after_ns, stop_ns)
        # the repair may leave before the node has read the NCF
        window = (attempt.from_ns, min(stop_ns, attempt.until_ns) + _TOLERANCE_NS)
        if self._within(parent, window, FlightKind.RDATA_OUT, FlightKind.MENDED):
            begin_ns = min(stop_ns, max(after_ns, steps[-1].to_ns)) if steps else after_ns
            text = f"{name} sent the repair, which did not reach {node}"
            return [*steps, Step("rdata-lost", node, text, begin_ns, stop_ns, name, failed=True)]
        shed = self._shed(parent, (attempt.from_ns, attempt.until_ns), {place.address for place in attempt.node.places})
        if shed is not None:
            text = f"a budget of {name} dropped the repair ({shed.cause})"
            return [Step("repair-shed", node, text, after_ns, stop_ns, name, failed=True, cause=shed.cause)]
        if steps:
            return steps
        text = f"{name} promised a repair and sent none in time"
        return [Step("unanswered", node, text, after_ns, stop_ns, name, failed=True)]


def verdict_on_repair(state: PacketState, steps: list[Step]) -> RepairVerdict:
    """Return why the repair was late or never came."""
    if state.presence is not Presence.MISSED:
        return RepairVerdict("none", "no repair was needed")
    took_ms = state.took_ns / MILLISECOND
    failures: dict[tuple[str, str, str, str], int] = {}
    for step in steps:
        if step.failed and step.kind != "gave-up":
            key = (step.kind, step.node, step.other, step.cause)
            failures[key] = failures.get(key, 0) + max(1, step.took_ns)
    worst = max(failures, key=lambda key: failures[key], default=None)
    if worst is None:
        if state.is_lost:
            return RepairVerdict(
                "gave-up",
                f"{state.node.name} gave up after {took_ms:,.1f} ms: {state.cause or 'retries'}",
                state.node.name,
                cause=state.cause,
            )
        if state.outcome == "pending":
            return RepairVerdict("pending", f"{state.node.name} still waits for it", state.node.name)
        longest = max(steps, key=lambda step: step.took_ns, default=None)
        why = f"; longest: {longest.text}, {longest.took_ns / MILLISECOND:,.1f} ms" if longest is not None else ""
        return RepairVerdict(
            "in-time", f"it was there {took_ms:,.1f} ms after the gap, without a fault on the way{why}", state.node.name
        )
    kind, node, other, cause = worst
    count = sum(1 for step in steps if step.failed and (step.kind, step.node, step.other, step.cause) == worst)
    text = next(step.text for step in steps if (step.kind, step.node, step.other, step.cause) == worst)
    times = f" ({count} times)" if count > 1 else ""
    end = (
        f"; {state.node.name} lost the packet" + (f" ({state.cause})" if state.cause else "")
        if state.is_lost
        else f"; it came after {took_ms:,.1f} ms"
        if state.end_ns
        else ""
    )
    return RepairVerdict(kind, f"{text}{times}{end}", node, other, cause)
