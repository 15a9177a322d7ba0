"""A receiver of files acknowledges the blocks that it has written, and no others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

import pgm
from pgm import Batch
from pgm.files.packets import FilePacketKind, read
from pgm.files.receiving import FileReceiver
from pgm.files.sending import send
from pgm.net.framing.items import BatchItem
from pgm.topology.load import loads
from pgm.units import NEVER
from tests.net.support.listening import PATIENCE_S
from tests.net.support.places import Place, one_segment

BLOCK = 64 * 1024


@pytest.mark.parametrize("window", [256, 16])  # the second is less than a block, and must not stop the transfer
async def test_acked_packets_of_files_are_written(place: Place, tmp_path: Path, window: int) -> None:
    settings = f'ack_window = {window}, ack_ivl = "5ms", file_block_bytes = "64KiB", file_ask_ivl = "50ms"'
    text = one_segment(place, parameters=settings).replace("[streams.s]\n", '[streams.s]\nflow = "acked"\n')
    topology, file = loads(text), tmp_path / "a"
    file.write_bytes(np.random.default_rng(1).bytes(1_500_000))
    blocks: dict[int, int] = {}  # by sqn
    checks: list[int] = []
    async with (
        pgm.open_receiver(topology, node="desk-1") as receiver,
        pgm.open_source(topology, node="source") as source,
        trio.open_nursery() as nursery,
    ):
        files, cover = FileReceiver(receiver, tmp_path / "into"), receiver.cover

        def note(items: Iterable[BatchItem], held: Any = None) -> None:
            for item in items:
                for packets in read(item.payloads) if isinstance(item, Batch) else ():
                    if packets.kind == FilePacketKind.DATA:
                        size = packets.payloads.shape[1]
                        for row in range(len(packets.payloads)):
                            sqn = item.first_sqn + packets.row + row
                            blocks[sqn] = (packets.place + row * size) // BLOCK
            cover(items, held)
            assembly = files.intake.assembly
            if assembly is not None:
                taken = receiver.internals[0].setup.ack_bound.acked(source.tsi, -1, NEVER)
                covered = {block for sqn, block in blocks.items() if sqn <= taken}
                checks.append(len(covered))
                if window > BLOCK // 1400:
                    assert assembly.whole[list(covered)].all()

        receiver.cover = note  # type: ignore[method-assign]
        nursery.start_soon(files.run)
        with trio.fail_after(PATIENCE_S):
            await source.joined(1)
            account = await send(source, files=[file], receivers=1)
            await source.stable()
        assert account["complete"] == 1
        nursery.cancel_scope.cancel()
    assert len(checks) > 1
    assert (tmp_path / "into" / "a").read_bytes() == file.read_bytes()
