"""Bound on the input that `pgm recv` gathers before a write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.stream.recv import _WRITE_OCTETS, _next_items
from pgm.messages.columns import Columns
from pgm.net.framing.items import Batch, BatchItem, MultipartBatch
from pgm.net.framing.packed_batch import PackedBatch
from tests.cli.command import invoked

_TSI = bytes(8)
_OCTETS = 100_000  # of a batch


def plain() -> BatchItem:
    return Batch(_TSI, 0, np.zeros((100, _OCTETS // 100), np.uint8))


def multipart() -> BatchItem:
    return MultipartBatch(_TSI, [(b"to", bytes(_OCTETS // 2 - 2)), (bytes(_OCTETS // 2),)], [0, 1])


def packed() -> BatchItem:
    return PackedBatch(_TSI, Columns.of_list([bytes(_OCTETS // 4)] * 4), np.zeros(1, np.int64), np.ones(1, np.int64))


class BusyReceiver:
    """Receiver of a stream that always has another batch."""

    def __init__(self, item: BatchItem) -> None:
        self.item = item
        self.taken = 0

    async def next_batch(self, timeout_s: float | None = None) -> BatchItem:
        self.taken += 1
        assert self.taken <= _WRITE_OCTETS // _OCTETS + 1, "the gathering has no bound"
        return self.item


@pytest.mark.parametrize("make", [plain, multipart, packed])
async def test_recv_continuous_input_is_written(make: Any) -> None:
    receiver: Any = BusyReceiver(make())
    items, goes_on = await _next_items(receiver)
    assert goes_on
    assert len(items) == -(-_WRITE_OCTETS // _OCTETS)


def test_send_negative_receivers_is_refused() -> None:
    done = invoked("send", "pgm://239.192.9.1?interface=lo&data_port=7500", "--file", "x", "--receivers", "-1")
    assert (done.code, "'--receivers'" in done.err) == (2, True), done


@pytest.mark.parametrize("verb", ["send", "recv"])
def test_send_recv_two_formats_are_refused(verb: str) -> None:
    target = "pgm://239.192.9.1?interface=lo&data_port=7500"
    invoked(verb, target, "--lines", "--format", "json").complains(2, "--lines and --format json")


def test_recv_into_excludes_message_options(tmp_path: Path) -> None:
    target = "pgm://239.192.9.1?interface=lo&data_port=7500"
    invoked("recv", target, "--into", tmp_path, "--from", "now").complains(
        2, "--into and --replace exclude the options for messages"
    )
