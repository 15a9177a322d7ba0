"""Small share of the campaign with killed repairers."""

from __future__ import annotations

from pgm.units import MIB
from tests.net.campaigns.repairer_kills import kill_repairers

PROBES = 1  # the probe may be noted as missing before the first SPM of the session, and is then found in the file


def test_successor_of_a_killed_repairer_requests_only_new_packets() -> None:
    [result] = kill_repairers(1, "40Mbit/s", 16 * MIB, 6000)
    assert result.restored >= 6000
    assert result.refused == 0
    assert 0 < result.missing <= result.meanwhile + PROBES
