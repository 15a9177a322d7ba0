"""Losses by link, as in `pgm.spark.jobs.losses`, whose text tells which link loses a packet."""

from __future__ import annotations

import attrs
import numpy as np

from pgm.figures.event_rows import EventRows, Flags, Groups, Ints, Sqns, by_sqn, combined
from pgm.figures.rules import LAGS, MAX_BURST_LENGTHS, MIN_LISTENERS, NEIGHBOURS, OWN_LOSSES, Summary, link_row

_NOBODY = -1  # node of a segment without a feeder


@attrs.frozen(eq=False)
class _Places:
    """Segments: by code of the segment, the number of nodes that heard data, and the node that sent most data."""

    listeners: Ints
    feeders: Ints
    heard: list[tuple[int, int, int]]  # segment, node, packets
    sent: list[tuple[int, int, int]]  # segment, feeder, packets

    @classmethod
    def of(cls, events: EventRows) -> _Places:
        segments = len(events.texts["segment"])
        listeners, feeders = np.zeros(segments, np.int64), np.full(segments, _NOBODY)
        heard = _sums(events.of_kind("received"))
        for segment, _, _ in heard:
            listeners[segment] += 1
        best: dict[int, tuple[int, int, int]] = {}
        for row in _sums(events.of_kind("sent")):
            if row[0] not in best or row[2] > best[row[0]][2]:
                best[row[0]] = row
        for segment, feeder, _ in best.values():
            feeders[segment] = feeder
        return cls(listeners, feeders, heard, list(best.values()))


def _sums(rows: EventRows) -> list[tuple[int, int, int]]:
    groups = Groups.of(rows["segment"], rows["node"])
    columns = rows["segment"][groups.lead], rows["node"][groups.lead], groups.sums(rows["count"])
    return list(zip(*(column.tolist() for column in columns), strict=True))


@attrs.frozen(eq=False)
class Bursts:
    """Runs of lost packets. `link` is a code in `links`; `pairs` has the lost pairs of each lag, by run."""

    places: _Places
    links: list[str]
    link: Ints
    length: Ints
    pairs: dict[int, Ints]

    @classmethod
    def of(cls, events: EventRows) -> Bursts:
        """Return the bursts of all links."""
        places = _Places.of(events)
        links, link, tsi, sqns = _attributed(events, places)
        stream = combined(link, tsi, sqns.era)
        order = np.argsort(combined(stream, sqns.sqn), kind="stable")
        stream, link, sqn = stream[order], link[order], sqns.sqn[order]
        streams = Groups.of(stream)
        rank = np.arange(len(stream)) - np.repeat(streams.starts, streams.sizes)
        islands = Groups.of(stream, sqn - rank)
        first, length = islands.least(sqn), islands.sizes
        in_order = np.argsort(combined(stream[islands.lead], first), kind="stable")
        lead, first, length = islands.lead[in_order], first[in_order], length[in_order]
        return cls(places, links, link[lead], length, {lag: _pairs(stream[lead], first, length, lag) for lag in LAGS})

    def by_length(self) -> tuple[list[Summary], Summary]:
        """Return the number of bursts by their length, and the sums of those that are longer."""
        lengths, counts = np.unique(self.length, return_counts=True)
        rows = [
            {"length": length, "bursts": count}
            for length, count in zip(lengths.tolist(), counts.tolist(), strict=True)
            if length <= MAX_BURST_LENGTHS
        ]
        longer = self.length[self.length > MAX_BURST_LENGTHS]
        sums = {"bursts": len(longer), "packets": int(longer.sum()), "longest": int(longer.max(initial=0))}
        return rows, sums

    def by_link(self) -> dict[str, Summary]:
        """Return the losses of each link: lost, bursts, pairs_K."""
        groups = Groups.of(self.link)
        sums = {"lost": groups.sums(self.length), "bursts": groups.sizes}
        sums |= {f"pairs_{lag}": groups.sums(pairs) for lag, pairs in self.pairs.items()}
        return {
            self.links[code]: {name: int(values[at]) for name, values in sums.items()}
            for at, code in enumerate(self.link[groups.lead].tolist())
        }


def links(events: EventRows, bursts: Bursts) -> list[Summary]:
    """Return every link that carried data, with its model."""
    places, lost = bursts.places, bursts.by_link()
    nothing: Summary = {"lost": 0, "bursts": 0, **{f"pairs_{lag}": 0 for lag in LAGS}}
    rows = []
    for segment, node, packets in places.heard:
        name = _link(events, segment, node)
        counts = lost.get(name, nothing)
        rows.append(_row(name, events.text("segment", segment), events.text("node", node), packets + counts["lost"], counts))  # fmt: skip
    for segment, node, packets in places.sent:
        name = f"{events.text('node', node)} > {events.text('segment', segment)}"
        rows.append(_row(name, events.text("segment", segment), None, packets, lost.get(name, nothing)))
    return sorted(rows, key=lambda row: str(row["link"]))


def _row(link: str, segment: str, node: str | None, packets: int, counts: Summary) -> Summary:
    found = {"link": link, "segment": segment, "node": node, "packets": packets, "lost": counts["lost"]}
    return link_row({**found, "loss": counts["lost"] / packets, **counts})


def _link(events: EventRows, segment: int, node: int) -> str:
    return f"{events.text('segment', segment)} > {events.text('node', node)}"


def _lost(events: EventRows) -> EventRows:
    ended = events.of_kind("repaired", "gave_up", "lost")
    is_end = (ended.has("kind", "lost") == ended.has("role", "receiver")) & ~ended.has("cause", *OWN_LOSSES)
    return ended.where(ended.has("kind", "repaired") | is_end)


def _attributed(events: EventRows, places: _Places) -> tuple[list[str], Ints, Ints, Sqns]:
    """Return the lost packets with their link: names of links, code of the link, TSI, and sqn of each packet."""
    lost = _lost(events)
    sqns = by_sqn(lost)
    is_below = _given_up_above(events, lost, places, sqns)
    sqns = Sqns(sqns.at[~is_below], sqns.sqn[~is_below], sqns.era[~is_below])
    segment, node, tsi = lost["segment"][sqns.at], lost["node"][sqns.at], lost["tsi"][sqns.at]
    packets = Groups.of(segment, tsi, sqns.sqn, sqns.era)
    lacking, one = packets.sizes[packets.of_rows], packets.least(node)[packets.of_rows]
    listeners = places.listeners[segment]
    by_feeder = (lacking >= listeners) & (listeners >= MIN_LISTENERS) & (places.feeders[segment] != _NOBODY)
    is_unique = ~by_feeder | (node == one)
    own = np.where(by_feeder, _NOBODY, node)
    names, link = _named_links(events, places, segment[is_unique], own[is_unique])
    return names, link, tsi[is_unique], Sqns(sqns.at[is_unique], sqns.sqn[is_unique], sqns.era[is_unique])


def _given_up_above(events: EventRows, lost: EventRows, places: _Places, sqns: Sqns) -> Flags:
    """Return whether each packet was lost further up, since the feeder of the segment has given it up."""
    gave_up = events.of_kind("gave_up")
    gave_up = gave_up.where(~gave_up.has("role", "receiver"))
    above = by_sqn(gave_up)
    feeder = places.feeders[lost["segment"][sqns.at]]
    keys = combined(
        np.concatenate([feeder, gave_up["node"][above.at]]),
        np.concatenate([lost["tsi"][sqns.at], gave_up["tsi"][above.at]]),
        np.concatenate([sqns.sqn, above.sqn]),
        np.concatenate([sqns.era, above.era]),
    )
    return np.isin(keys[: len(feeder)], keys[len(feeder) :])


def _named_links(events: EventRows, places: _Places, segment: Ints, node: Ints) -> tuple[list[str], Ints]:
    """Return the names of links, and the code of each packet's link. `node` is nobody for the link of a feeder."""
    groups = Groups.of(segment, node)
    names = []
    for at in groups.lead.tolist():
        if node[at] == _NOBODY:
            feeder = int(places.feeders[segment[at]])
            names.append(f"{events.text('node', feeder)} > {events.text('segment', int(segment[at]))}")
        else:
            names.append(_link(events, int(segment[at]), int(node[at])))
    known = sorted(set(names))
    codes = np.array([known.index(name) for name in names], np.int64)
    return known, codes[groups.of_rows] if len(codes) else groups.of_rows


def _pairs(stream: Ints, first: Ints, length: Ints, lag: int) -> Ints:
    """Return for each run how many of its packets have a lost successor at distance `lag`."""
    found = np.maximum(length - lag, 0)
    for step in range(1, NEIGHBOURS + 1):
        here, after = slice(None, -step), slice(step, None)
        low = np.maximum(first[here] + lag, first[after])
        high = np.minimum(first[here] + length[here] + lag, first[after] + length[after])
        found[here] += np.where(stream[here] == stream[after], np.maximum(high - low, 0), 0)
    return found
