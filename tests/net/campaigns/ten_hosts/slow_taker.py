"""Receiver whose application takes nothing after each SIGUSR1 for a while: `main(FILE, NODE)`, until it is killed.

Each loss that the receiver reports is a line of the output: the first sqn, and the cause.
"""

from __future__ import annotations

import signal
import time

import pgm.blocking
from pgm import Lost

STALL_S = 8.0


def main(file: str, node: str) -> None:
    """Take messages, and be slow when told."""
    stalls: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: stalls.append(number))
    with pgm.blocking.open_receiver(file, node=node, answer="yes") as receiver:
        for item in receiver:
            if isinstance(item, Lost):
                print(item.first, item.count, item.cause.value, flush=True)
            if stalls:
                stalls.clear()
                time.sleep(STALL_S)
