"""Loss rates: a moving average over sqns (draft-ietf-rmt-bb-pgmcc-03, 2.6; CC-40), as receivers, elements and sources reckon it."""

from __future__ import annotations

ALL_LOST = 0xFFFF  # a loss rate of one in packets (CC-03)
WEIGHT = 500 / 65_536  # of one packet in the average (2.6, E-18)


def moved(loss: float, missed: int, got: int) -> float:
    """A loss rate, 0 to 1, after so many sqns that did not come and then so many that did."""
    return (1 - (1 - loss) * (1 - WEIGHT) ** missed) * (1 - WEIGHT) ** got
