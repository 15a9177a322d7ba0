"""Output of `pgm recv --from snapshot`: the state comes first, in the form of a message."""

from __future__ import annotations

from typing import Any

import cbor2
import numpy as np
import pytest

from deploy.stream.formats import writer_of
from deploy.stream.line_template import LineTemplate
from deploy.stream.receive_output import ReceiveOutput
from pgm import Forged, LossCause, Snapshot
from pgm.net.framing.items import Batch

TSI = bytes(range(8))


@pytest.mark.parametrize(
    ("form", "state", "expected"),
    [
        ("octets", b"state", b"statenext!"),
        ("lines", b"state", b"state\nnext!\n"),
        ("{payload}", b"state", b"state\nnext!\n"),
        ("json", cbor2.dumps({"a": 1}), b'{"a": 1}\n"next!"\n'),
    ],
)
def test_output_begins_with_the_state(form: str, state: bytes, expected: bytes, capfdbinary: Any) -> None:
    template = LineTemplate.of(form) if "{" in form else None
    output = ReceiveOutput(form, False, writer_of(form), template)
    message = cbor2.dumps("next!") if form == "json" else b"next!"
    sqn = 17 + len(form)  # equal lines of the log are collapsed
    batch = Batch(TSI, sqn, np.frombuffer(message, np.uint8).reshape(1, -1))
    assert output.take([Snapshot(TSI, memoryview(state), sqn), batch])
    out, err = capfdbinary.readouterr()
    assert out == expected
    assert b"before sqn %d" % sqn in err
    assert output.messages == 1


def test_output_names_delivered_packets_that_are_forged(capfdbinary: Any) -> None:
    output = ReceiveOutput("lines", False)
    batch = Batch(TSI, 17, np.frombuffer(b"false", np.uint8).reshape(1, -1))
    assert output.take([batch, Forged(TSI, 17, 1, LossCause.FORGED)])
    out, err = capfdbinary.readouterr()
    assert out == b"false\n"
    assert b"sqns 17 to 17: delivered, and forged" in err
    assert output.forged == 1
