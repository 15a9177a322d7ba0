"""`pgm recv --on-loss` and `--slow`: effects of a loss and of a slow reader of the output.

`tests/net/endpoint/test_loss_policies.py` covers the meaning of each policy. These tests check that the command passes
the policy on and ends accordingly.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.cli.command import carried, invoked
from tests.net.support.places import Place, one_segment

COUNT, SIZE = 3000, 1000
LINES = [b"%06d" % number + b"." * (SIZE - 7) for number in range(COUNT)]


@attrs.frozen
class ReceiverResult:
    """Result of a receiver that has ended."""

    lines: list[bytes]
    code: int
    account: dict[str, Any]
    said: str

    @property
    def ids(self) -> set[str]:
        """Return the events of the account."""
        return {row["id"] for row in self.account["events"]}

    @property
    def is_in_order(self) -> bool:
        """Return whether all output was sent, in this order."""
        sent = iter(LINES)
        return all(line in sent for line in self.lines)


def run_receiver(folder: Path, tree: str, place: Place, *options: str) -> ReceiverResult:
    """Return the output of a receiver that is read only after the source has ended."""
    file = folder / "tree.toml"
    file.write_text(tree)
    got = carried(file, place, b"\n".join(LINES), recv=["--lines", *options], send=["--lines"])
    assert got.sent.returncode == 0, got.sent.stderr
    *told, account = got.said.splitlines()
    return ReceiverResult(got.out.splitlines(), got.code, json.loads(account), "\n".join(told))


@pytest.mark.parametrize("on_loss", ["resync", "raise"])
def test_on_loss(tmp_path: Path, on_loss: str) -> None:
    """One packet in a hundred is lost on a stream without NAKs."""
    place = Place.new()
    tree = one_segment(place, loss='{ loss = "1%" }').replace("[streams.s]", '[streams.s]\norder = "unreliable"')
    got = run_receiver(tmp_path, tree, place, "--on-loss", on_loss)
    assert got.code == 1, got.said
    assert got.is_in_order
    assert got.account["messages"] == len(got.lines)
    if on_loss == "raise":
        assert got.said.count(" lost-") == 1, got.said
        assert "closed-fin" not in got.ids
        assert len(got.lines) < COUNT - 1
        return
    assert "closed-fin" in got.ids
    assert got.said.count(" lost-") >= 3, got.said
    assert COUNT - 100 <= len(got.lines) + got.account["lost"] <= COUNT


@pytest.mark.parametrize("slow", ["drop-oldest", "close"])
def test_slow(tmp_path: Path, slow: str) -> None:
    place = Place.new()
    tree = one_segment(place, rate="80Mbit/s", parameters='inbox_bytes = "64KiB", rxw_bytes = "64MiB"')
    got = run_receiver(tmp_path, tree, place, "--slow", slow)
    assert got.is_in_order
    assert got.code == 1, got.said
    if slow == "close":
        assert "closed-overrun" in got.ids
        assert got.lines == LINES[: len(got.lines)]
        assert len(got.lines) < COUNT
        return
    assert "lost-overrun" in got.ids
    assert len(got.lines) + got.account["lost"] == COUNT
    assert got.lines[-1] == LINES[-1]


@pytest.mark.parametrize(("option", "value"), [("--on-loss", "raise"), ("--slow", "close")])
def test_files_have_no_policies(option: str, value: str) -> None:
    done = invoked("recv", "tree.toml", "--node", "desk-1", "--into", "downloads", option, value)
    done.complains(2, "--into and --replace exclude the options for messages")
