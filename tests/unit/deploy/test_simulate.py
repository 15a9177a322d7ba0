"""Parsing of the options of `pgm sim`."""

from __future__ import annotations

import pytest

from deploy.simulation.command import parse_counts
from pgm.errors import UsageError


def test_sim_counts_must_be_numbers() -> None:
    assert parse_counts(("desk-*=100", "hall-*=0")) == {"desk-*": 100, "hall-*": 0}
    for text in ("desk-*", "desk-*=", "desk-*=many", "desk-*=-1", "desk-*=\u00b2"):
        with pytest.raises(UsageError, match="is not a count"):
            parse_counts((text,))
