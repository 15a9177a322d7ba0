"""`pgm send --file` and `pgm recv --into` as real processes.

The tests cover losses, a receiver that is killed, and the messages for impossible transfers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.test_json import documented
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Process, Processes, processes

LOSSY = "{ loss = '5%' }"


def make_tree(folder: Path, small: int = 300, large: int = 12_000_000) -> Path:
    """Make many small files, empty ones, a sparse one, and a large one."""
    rng = np.random.default_rng(small)
    (folder / "many" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    for number in range(small):
        octets = rng.bytes(int(rng.integers(0, 300)))
        (folder / "many" / ("deep" if number % 3 else "") / f"{number}").write_bytes(octets)
    (folder / "nothing").touch()
    (folder / "large").write_bytes(rng.bytes(large))
    (folder / "large").chmod(0o640)
    with (folder / "sparse").open("wb") as file:
        file.truncate(3 << 20)
        file.seek(1 << 20)
        file.write(b"here")
    return folder


def contents(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode & 0o777, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def tree(place: Place) -> Iterator[Processes]:
    with processes(one_segment(place, rate="200Mbit/s", parameters=""), f"t{place.number}") as made:
        yield made


def recv(tree: Processes, node: str, into: Path, *options: str) -> Process:
    return tree.start(node, "--into", str(into), *options, verb="recv")


def send(tree: Processes, *options: str) -> Process:
    return tree.start("source", *options, verb="send")


def account(process: Process) -> dict[str, Any]:
    """Return a receiver's account at its end, from standard error."""
    process.wait()
    found: dict[str, Any] = json.loads(next(line for _, line in reversed(process.lines) if line.startswith("{")))
    return found


def until_listening(*nodes: Process) -> None:
    """Wait until processes have sockets."""
    for process in nodes:
        while not any("socket:" in name for name in descriptors(process)):
            assert process.process.poll() is None, process.log


def descriptors(process: Process) -> list[str]:
    found = []
    for path in Path(f"/proc/{process.process.pid}/fd").glob("*"):
        try:
            found.append(os.readlink(path))
        except OSError:
            continue
    # Three of a receiver: its segment's two, and the loop's own pair.
    return found if sum("socket:" in name for name in found) > 3 else []


def test_a_folder_comes_whole_through_losses(place: Place, tmp_path: Path) -> None:
    src = make_tree(tmp_path / "src")
    with processes(one_segment(place, rate="200Mbit/s", loss=LOSSY), f"t{place.number}") as tree:
        receivers = [recv(tree, f"desk-{number}", tmp_path / f"into-{number}") for number in (1, 2)]
        until_listening(*receivers)
        sent = send(tree, "--folder", str(src), "--receivers", "2").account()
        documented("send --file", sent)
        assert sent["complete"] == 2
        assert sent["incomplete"] == 0
        assert sent["files"] == 303
        for number, receiver in enumerate(receivers, 1):
            said = account(receiver)
            documented("recv --into", said)
            assert receiver.process.returncode == 0
            assert said["done"]
            assert contents(tmp_path / f"into-{number}" / "src") == contents(src)
            assert (tmp_path / f"into-{number}" / "src" / "empty").is_dir()
            assert os.listdir(tmp_path / f"into-{number}") == ["src"]


def test_file_transfer_resends_losses_of_unreliable_streams(place: Place, tmp_path: Path) -> None:
    src = make_tree(tmp_path / "src", small=20, large=4_000_000)
    text = one_segment(place, rate="200Mbit/s", loss="{ loss = '0.2%' }").replace(
        "data_port = 7500", 'data_port = 7500\norder = "unreliable"'
    )
    with processes(text, f"t{place.number}") as tree:
        receiver = recv(tree, "desk-1", tmp_path / "into")
        until_listening(receiver)
        sent = send(tree, "--folder", str(src), "--receivers", "1").account()
        said = account(receiver)
        assert said["packets_lost"] > 0
        assert sent["rounds"] > 1
        assert sent["complete"] == 1
        assert contents(tmp_path / "into" / "src") == contents(src)


def test_a_receiver_that_is_killed_goes_on_from_what_it_has(tree: Processes, tmp_path: Path) -> None:
    size = 40_000_000
    file = tmp_path / "big"
    file.write_bytes(np.random.default_rng(1).bytes(size))
    steady, killed = recv(tree, "desk-1", tmp_path / "steady"), recv(tree, "desk-2", tmp_path / "killed")
    until_listening(steady, killed)
    sender = send(tree, "--file", str(file))

    def written() -> int:
        return sum(path.stat().st_blocks * 512 for path in (tmp_path / "killed").glob(".pgm-*/*.part"))

    while written() < size // 4:
        assert sender.process.poll() is None, sender.log
    killed.kill()
    assert not (tmp_path / "killed" / "big").exists()
    again = recv(tree, "desk-2", tmp_path / "killed", "--wait", "10s")
    sent = sender.account()
    again.wait()
    said = account(again) if any(line.startswith("{") for _, line in again.lines) else {}
    assert account(steady)["done"]
    if not said.get("done"):  # it came too late for the questions of this transfer, or for all of it
        until = recv(tree, "desk-2", tmp_path / "killed")
        until_listening(until)
        sent = send(tree, "--file", str(file), "--resume", "--receivers", "1").account()
        said = account(until)
    assert said["done"]
    assert said["octets_resumed"] >= size // 5
    assert sent["octets_sent"] < 2 * size
    assert (tmp_path / "killed" / "big").read_bytes() == file.read_bytes()


def test_resume_sends_only_what_is_lacking(tree: Processes, tmp_path: Path) -> None:
    size = 40_000_000
    file = tmp_path / "big"
    file.write_bytes(np.random.default_rng(2).bytes(size))
    receiver = recv(tree, "desk-1", tmp_path / "into")
    until_listening(receiver)
    sender = send(tree, "--file", str(file))
    while not list((tmp_path / "into").glob(".pgm-*/0.part")):
        assert sender.process.poll() is None, sender.log
    while sum(next((tmp_path / "into").glob(".pgm-*/blocks")).read_bytes()) < 10:
        assert sender.process.poll() is None, sender.log
    sender.kill()
    receiver.stop()
    assert receiver.process.returncode != 0
    [journal] = (tmp_path / "into").glob(".pgm-*/blocks")
    had = sum(journal.read_bytes())
    again = recv(tree, "desk-1", tmp_path / "into")
    until_listening(again)
    sent = send(tree, "--file", str(file), "--resume", "--receivers", "1").account()
    said = account(again)
    assert said["done"]
    assert said["octets_resumed"] > (had - 1) * 1_000_000
    assert sent["octets_sent"] <= size - (had - 1) * 1_000_000
    assert (tmp_path / "into" / "big").read_bytes() == file.read_bytes()


def test_a_name_that_is_taken_is_told_to_both_sides(tree: Processes, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"new")
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "a").write_bytes(b"old")
    receiver = recv(tree, "desk-1", tmp_path / "into")
    until_listening(receiver)
    sender = send(tree, "--file", str(file), "--receivers", "1")
    assert receiver.wait() == 1
    assert "there is already a" in receiver.log
    assert "--replace" in receiver.log
    assert sender.wait() == 1
    [state] = json.loads(sender.printed[-1])["receivers"].values()
    assert state["state"] == "failed"
    assert (tmp_path / "into" / "a").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--file", "/nowhere"), "/nowhere"), (("--folder", "/etc/passwd"), "no folder"),
     (("--file", "/etc/passwd", "--lines"), "--lines"), (("--resume",), "nothing to send")],
)  # fmt: skip
def test_file_transfer_names_unsendable_files(tree: Processes, options: tuple[str, ...], said: str) -> None:
    sender = send(tree, *options, "--settle", "0ms")
    assert sender.wait() in (1, 2)
    assert said in " ".join((*sender.printed, sender.log))


def test_file_transfer_waits_for_acknowledging_receivers(place: Place, tmp_path: Path) -> None:
    """A machine that stands still for longer than all questions take is slow, and has not left."""
    hasty = 'file_ask_ivl = "10ms", ack_expiry = "30s"'
    text = one_segment(place, rate="20Mbit/s", parameters=hasty).replace("data_port", 'flow = "acked"\ndata_port')
    file = tmp_path / "a"
    file.write_bytes(np.random.default_rng(3).bytes(2_000_000))  # less than a window: the source need not wait for acks
    with processes(text, f"t{place.number}") as tree:
        receiver = recv(tree, "desk-1", tmp_path / "into")
        until_listening(receiver)
        sender = send(tree, "--file", str(file), "--receivers", "1")
        while not list((tmp_path / "into").glob(".pgm-*/blocks")):
            assert sender.process.poll() is None, sender.log
        receiver.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                sender.process.wait(2.5)  # 0.8 s to send the rest, and ten times as much as the questions take
        finally:
            receiver.process.send_signal(signal.SIGCONT)
        assert sender.account()["complete"] == 1
        assert account(receiver)["done"]
        assert (tmp_path / "into" / "a").read_bytes() == file.read_bytes()
