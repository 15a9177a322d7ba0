"""Numbers and rules that define the figures of a report, shared by the way in memory and the jobs of Spark."""

from __future__ import annotations

from typing import Any

from pgm.figures.gilbert_elliott import gilbert_elliott

Summary = dict[str, Any]  # value that json.dumps accepts

# Sqns repeat after 2^32 packets, which is 7 minutes at 10 million a second. Only events of the same part of the day are
# joined.
SAME_SQNS_S = 300

# links
OWN_LOSSES = ("malformed", "fragment")  # causes of a receiver's losses that no link has caused
MIN_LISTENERS = 4  # of a segment, since fewer neighbours lose the same packet by chance
LAGS = (1, 2, 4, 8)  # packets; distances at which losses are compared, to tell bursts from chance
NEIGHBOURS = max(LAGS) // 2  # runs that can lie within that distance: a loss alternates with a packet that arrived
MAX_BURST_LENGTHS = 64  # packets; longer bursts are summed

# repairs
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
STEPS_PER_E = 50  # of latencies: steps of two per cent
OUTCOMES = ("gap", "skipped", "repaired", "late", "lost", "nak_sent", "suppressed")  # kinds from which COUNTED come
COUNTED = ("missing", "repaired", "local", "late", "lost", "nak_sqns", "suppressed")  # at receivers, in sqns

# requests of one child
EXCESS_WINDOW_S = 10
EXCESS_TIMES = 8.0  # times the requests of the median neighbour
EXCESS_SHARE = 0.01  # of the requests of all other children: a smaller share is harmless
EXCESS_LEAST = 20  # requests in a window
MAX_EXCESS_ROWS = 100

# timers
ASKERS = ("receiver", "repairer")  # roles whose timers are judged
ANSWERS = ("confirmed", "repaired")  # kinds that end a wait in time
FIRINGS = ("ncf_timeout", "rdata_timeout")  # kinds of timers that fired
OF_REPETITION = ("confirmed", "ncf_timeout")  # kinds of `nak_rpt_ivl`; the others are of `nak_rdata_ivl`
EARLY_SHARE = 0.1  # share of needless firings above which a timer is too early
LATE_TIMES = 4.0  # multiple of the time of 99 % of the answers above which a timer is too late
CROWDED = 1.5  # requests for the same packet on a segment: more means too short a back-off
ALONE = 1.05
LONG_BACK_OFF = 10.0  # round trips
ANSWER_QUANTILES = (0.01, 0.5, 0.99)

# kinds of a node's traffic, by the name in the summary
TRAFFIC = {"sent": "sent", "rdata": "rdata_sent", "nak_in": "nak_in", "nak_sent": "nak_sent", "ncf_sent": "ncf_sent"}

_WINDOWS = 120  # of a timeline, at most
_MIN_WINDOW_S = 1


def timeline_window_s(span_s: float) -> int:
    """Return the length of a timeline's windows in seconds, for events that span `span_s`."""
    return max(_MIN_WINDOW_S, round(span_s / _WINDOWS))


def link_row(row: Summary) -> Summary:
    """Return the row of a link with its model in place of the lost pairs (`pairs_K`)."""
    pairs = {lag: int(row.pop(f"pairs_{lag}")) for lag in LAGS}
    model = gilbert_elliott(int(row["packets"]), int(row["lost"]), pairs)
    return {**row, "model": {"loss": model.loss, "burst_loss": model.burst_loss, "burst_length": model.burst_length}}
