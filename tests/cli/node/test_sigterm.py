"""SIGTERM outside the wait of a node: it ends the process before the run, and prints the account after it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_PROGRAM = """
import os, signal, trio
from deploy.node.sigterm import SIGTERM_HANDLER
from pgm.net.control.signals import heed_signals

async def run():
    async with trio.open_nursery() as nursery:
        await nursery.start(heed_signals, lambda _: nursery.cancel_scope.cancel())
        SIGTERM_HANDLER.has_ended = {has_ended}
        nursery.cancel_scope.cancel()
    os.kill(os.getpid(), signal.SIGTERM)

with SIGTERM_HANDLER.installed():
    trio.run(run)
    print("the account")
"""


@pytest.mark.parametrize(("has_ended", "code", "said"), [(True, 0, "the account\n"), (False, -signal.SIGTERM, "")])
def test_sigterm_at_the_end_still_prints_the_account(has_ended: bool, code: int, said: str) -> None:
    command = [sys.executable, "-c", _PROGRAM.format(has_ended=has_ended)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (code, said), ended.stderr
