"""Commands that send and receive tell the protection of their streams at the start."""

from __future__ import annotations

import pytest

from deploy.stream.files import tell_protection
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from tests.unit.topology.cases import KEYED
from tests.unit.topology.trees import changed, topology


def test_start_line_tells_protection_of_streams_and_no_clear_one(capsys: pytest.CaptureFixture[str]) -> None:
    tell_protection(plan_node(topology(), "exchange"))
    assert capsys.readouterr().err == ""
    signed = loads(changed(("data_port = 7500", "data_port = 7500\nsigned = true"), ("count = 4", "count = 1"), KEYED))
    tell_protection(plan_node(signed, "exchange"))
    assert "source exchange runs; stream quotes: signed" in capsys.readouterr().err
