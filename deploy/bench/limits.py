"""Explanation of a contender's maximum rate, derived from its trials."""

from __future__ import annotations

from deploy.bench.contender import Contender
from deploy.bench.search import REACHED, Maximum
from deploy.bench.trial import TrialResult

_FULL = 0.9  # share of a core from which the core counts as saturated


def limited_by(contender: Contender, maximum: Maximum) -> str:
    """Return one line of text that explains a contender's maximum."""
    best, too_fast = maximum.median, maximum.too_fast
    if best is None:
        return f"no rate without loss, not even {_rate(too_fast)}" if too_fast else "nothing arrived"
    parts = []
    if not contender.is_busy_poll:
        for name, share in (("sender", sender_share(best)), ("receiver", receiver_share(best))):
            if share >= _FULL:
                parts.append(f"limited by the {name}'s core ({share:.0%})")
    if too_fast is not None:
        parts.append(f"too fast {_rate(too_fast)}: {too_fast.flaw}{_drops(too_fast)}{_busy(contender, too_fast)}")
    elif not parts:
        parts.append("limited by its sender, which reached no higher rate")
    if maximum.stumbles:
        parts.append("one run at this rate failed, and the following runs did not")
    return "; ".join(parts)


def sender_share(outcome: TrialResult) -> float:
    """Return the share of a core that the sender used while it sent."""
    return outcome.sender.cpu_s / outcome.send_s if outcome.send_s else 0.0


def receiver_share(outcome: TrialResult) -> float:
    """Return the share of a core that the receiver used while it received."""
    return outcome.receiver.cpu_s / outcome.seconds if outcome.seconds else 0.0


def _rate(outcome: TrialResult) -> str:
    """Return the requested rate, and the rate sent if it is lower."""
    requested, sent = (f"{rate * outcome.size / 1e6:,.0f} MB/s" for rate in (outcome.rate, outcome.offered_per_s))
    if not outcome.rate:
        return f"flat out, at {sent}"
    return (
        f"at {requested}"
        if outcome.offered_per_s >= REACHED * outcome.rate
        else f"at {requested}, of which {sent} were sent"
    )


def _drops(outcome: TrialResult) -> str:
    return f", {outcome.kernel_drops:,} drops at the receiver's full buffer" if outcome.kernel_drops else ""


def _busy(contender: Contender, outcome: TrialResult) -> str:
    if contender.is_busy_poll:
        return ""
    return f" (sender {sender_share(outcome):.0%}, receiver {receiver_share(outcome):.0%} of a core)"
