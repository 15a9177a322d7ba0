"""Cost and time of repairs, as in `pgm.spark.jobs.repairs`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal

import attrs
import numpy as np

from pgm.figures import rules
from pgm.figures.event_rows import HAS_VALUE, EventRows, Groups, Ints, by_sqn
from pgm.figures.rules import Summary
from pgm.figures.values import iso, percentile, ratio


def latency_steps(value_us: Ints) -> Ints:
    """Return the step of each time in a histogram of latencies, two per cent apart."""
    return np.floor(np.log(np.maximum(value_us, 1)) * rules.STEPS_PER_E + 0.5).astype(np.int64)


def latency_us(step: int) -> float:
    """Return the latency that a step stands for, us."""
    return math.exp(step / rules.STEPS_PER_E)


def latencies(events: EventRows) -> tuple[list[Summary], Summary]:
    """Return the latencies of repairs at receivers, by segment and of all."""
    rows = _repaired(events)
    by_segment = [
        {"segment": rows.text("segment", int(rows["segment"][members[0]])), **_latencies(rows, members)}
        for members in Groups.of(rows["segment"]).members()
    ]
    return by_segment, (_latencies(rows, np.arange(len(rows))) if len(rows) else {})


def latencies_by_node(events: EventRows) -> list[Summary]:
    """Return the latencies of repairs at receivers, by segment and node."""
    rows = _repaired(events)
    found: list[Summary] = []
    for members in Groups.of(rows["segment"], rows["node"]).members():
        one = members[0]
        place = {name: rows.text(name, int(rows[name][one])) for name in ("segment", "node")}
        found.append({**place, **_latencies(rows, members)})
    return found


def _repaired(events: EventRows) -> EventRows:
    rows = events.of_kind("repaired")
    return rows.where((rows[HAS_VALUE] == 1) & rows.has("role", "receiver"))


def _latencies(rows: EventRows, members: Ints) -> Summary:
    step, count, value = latency_steps(rows["value_us"][members]), rows["count"][members], rows["value_us"][members]
    groups = Groups.of(step)
    times = [latency_us(one) / 1000 for one in step[groups.lead].tolist()]
    sqns = groups.sums(count)
    quantiles = {f"{name}_ms": percentile(times, sqns, share) for name, share in rules.QUANTILES.items()}
    return {"repaired": int(count.sum()), **quantiles, "worst_ms": int(value.max()) / 1000}


@attrs.frozen(eq=False)
class Outcomes:
    """Outcomes of losses at receivers in sqns, by window and segment. `counts` has the sums of `COUNTED`."""

    window: Ints
    segment: Ints
    segments: list[str]
    counts: dict[str, Ints]

    @classmethod
    def of(cls, events: EventRows, window_s: int) -> Outcomes:
        """Sum the outcomes in windows of `window_s` seconds."""
        rows = events.of_kind(*rules.OUTCOMES)
        rows = rows.where(rows.has("role", "receiver"))
        window, count = rows.windows(window_s), rows["count"]
        groups = Groups.of(window, rows["segment"])
        sums = {kind: groups.sums(np.where(rows.has("kind", kind), count, 0)) for kind in rules.OUTCOMES}
        counts = {
            "missing": sums["gap"] - sums["skipped"],
            "repaired": sums["repaired"],
            "local": groups.sums(np.where(rows["local"] == 1, count, 0)),
            "late": sums["late"],
            "lost": sums["lost"],
            "nak_sqns": sums["nak_sent"],
            "suppressed": sums["suppressed"],
        }
        return cls(window[groups.lead], rows["segment"][groups.lead], rows.texts["segment"], counts)

    def by_segment(self) -> list[Summary]:
        """Return the outcomes of each segment."""
        return self._rows("segment", self.segment, [self.segments[code] for code in np.unique(self.segment)])

    def timeline(self) -> list[Summary]:
        """Return the outcomes of each window."""
        return self._rows("window", self.window, [iso(start) for start in np.unique(self.window).tolist()])

    def _rows(self, key: str, codes: Ints, names: Sequence[str]) -> list[Summary]:
        groups = Groups.of(codes)
        sums = {name: groups.sums(self.counts[name]).tolist() for name in rules.COUNTED}
        rows = []
        for at, name in enumerate(names):
            row = {key: name, **{counted: sums[counted][at] for counted in rules.COUNTED}}
            row["local_share"] = ratio(row["local"], row["repaired"])
            row["suppressed_share"] = ratio(row["suppressed"], row["suppressed"] + row["nak_sqns"])
            rows.append(row)
        return rows


def duplicates(events: EventRows) -> list[Summary]:
    """Return how often sqns were requested and repaired on each segment."""
    rows = events.of_kind("nak_sent", "rdata_sent")
    rows = rows.where(~rows.has("kind", "nak_sent") | rows.has("role", "receiver"))
    sqns = by_sqn(rows)
    is_asked = rows.has("kind", "nak_sent")[sqns.at]
    segment = rows["segment"][sqns.at]
    packets = Groups.of(segment, rows["tsi"][sqns.at], sqns.sqn, sqns.era)
    asked, repairs = packets.sums(is_asked), packets.sums(~is_asked)
    segments = Groups.of(segment[packets.lead])
    columns = {
        "lacked": segments.sums(asked > 0),
        "asked": segments.sums(asked),
        "repaired": segments.sums(repairs > 0),
        "repairs": segments.sums(repairs),
    }
    found: list[Summary] = []
    for at, code in enumerate(segment[packets.lead][segments.lead].tolist()):
        row: Summary = {
            "segment": rows.text("segment", code),
            **{name: int(sums[at]) for name, sums in columns.items()},
        }
        row["asked_ratio"] = ratio(row["asked"], row["lacked"])
        row["repair_ratio"] = ratio(row["repairs"], row["repaired"])
        found.append(row)
    return found


def excess_naks(events: EventRows) -> list[Summary]:
    """Return children with far more requests than the others of the same parent, the earliest first."""
    rows = events.of_kind("nak_in")
    window = rows.windows(rules.EXCESS_WINDOW_S)
    children = Groups.of(window, rows["node"], rows["segment"], rows["peer"])
    lead, asked = children.lead, children.sums(rows["count"])
    names = _names(events)
    found: list[Summary] = []
    for members in Groups.of(window[lead], rows["node"][lead], rows["segment"][lead]).members():
        values, counts = np.unique(asked[members], return_counts=True)
        usual = percentile(values.tolist(), counts, 0.5)
        total = int(asked[members].sum())
        for at in members.tolist():
            own = int(asked[at])
            if len(members) < 2 or not _is_excessive(own, usual, total - own):
                continue
            row, start = lead[at], int(window[lead[at]])
            place = rows.text("segment", int(rows["segment"][row])), rows.text("peer", int(rows["peer"][row]))
            for child in names.get(place, [place[1]]):
                found.append(
                    {
                        "window": iso(start),
                        "node": rows.text("node", int(rows["node"][row])),
                        "segment": place[0],
                        "child": child,
                        "asked": own,
                        "usual": usual,
                        "times": _rounded(own / usual),
                    }
                )
    found.sort(key=lambda row: (row["window"], -row["asked"], row["node"], row["segment"], row["child"]))
    return found[: rules.MAX_EXCESS_ROWS]


def _is_excessive(asked: int, usual: float, others: int) -> bool:
    is_many = asked >= rules.EXCESS_LEAST and asked > rules.EXCESS_TIMES * usual
    return is_many and asked > rules.EXCESS_SHARE * others


def _names(events: EventRows) -> dict[tuple[str, str], list[str]]:
    """Return the names of the nodes with an address, by segment and address."""
    rows = events.of_kind("address")
    found: dict[tuple[str, str], list[str]] = {}
    for at in Groups.of(rows["segment"], rows["peer"], rows["node"]).lead.tolist():
        place = rows.text("segment", int(rows["segment"][at])), rows.text("peer", int(rows["peer"][at]))
        found.setdefault(place, []).append(rows.text("node", int(rows["node"][at])))
    return found


def _rounded(value: float) -> float:
    return float(Decimal(repr(value)).quantize(Decimal("0.1"), ROUND_HALF_UP))


def traffic(events: EventRows) -> list[Summary]:
    """Return packets and sqns that each node sent and was asked for."""
    rows = events.of_kind(*rules.TRAFFIC.values())
    groups = Groups.of(rows["node"], rows["role"])
    sums = {
        name: groups.sums(np.where(rows.has("kind", kind), rows["count"], 0)) for name, kind in rules.TRAFFIC.items()
    }
    return [
        {
            "node": rows.text("node", int(rows["node"][row])),
            "role": rows.text("role", int(rows["role"][row])),
            **{name: int(values[at]) for name, values in sums.items()},
        }
        for at, row in enumerate(groups.lead.tolist())
    ]


def left_out(events: EventRows) -> list[Summary]:
    """Return the rows that nodes could not write."""
    rows = events.of_kind("overflow")
    groups = Groups.of(rows["node"])
    counts = groups.sums(rows["count"]).tolist()
    return [
        {"node": rows.text("node", code), "rows": count}
        for code, count in zip(rows["node"][groups.lead].tolist(), counts, strict=True)
    ]
