"""`pgm demo`: small and unprivileged; its account adds up, and it fails for every fault."""

from __future__ import annotations

import copy
import json
import os
import pty
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from deploy.demo.account import find_problems
from deploy.demo.tree import DemoTree, demo_topology
from deploy.demo.view import account_view
from deploy.node.sample_messages import digest
from pgm.fleet.runtime_folders import sockets_in, tree_folders
from pgm.impairments import Impairment, Injector
from pgm.topology.load import loads
from pgm.topology.node_plan import Role
from pgm.topology.plan import plan_all
from tests.cli.command import PATIENCE_S, command, environment, invoked, marked, pgm, unprivileged
from tests.cli.test_json import documented
from tests.net.support.lab import ROOT

MESSAGES = 2000
SMALL = ("--messages", "1000", "--subnets", "1", "--receivers", "1")


@pytest.fixture(scope="module")
def account() -> dict[str, Any]:
    """Return the account of a demo on two tiers, run without privileges."""
    line = unprivileged("demo", "--messages", str(MESSAGES), "--receivers", "3", "--json")
    with marked() as mark:
        done = subprocess.run(
            line,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**environment(), **mark.env},
            timeout=PATIENCE_S,
            check=False,
        )
        mark.until_nothing_runs()
    assert (done.returncode, done.stderr) == (0, ""), done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_demo_delivers_every_message_to_every_receiver(account: dict[str, Any]) -> None:
    assert (account["ok"], account["problems"]) == (True, [])
    assert [row["node"] for row in account["receivers"]] == ["receiver-1-1", "receiver-2-1", "receiver-3-1"]
    for row in account["receivers"]:
        wrong = {key: row[key] for key in ("lost", "duplicates", "out_of_order", "damaged") if row[key]}
        assert (row["delivered"], wrong, row["sha256_ok"]) == (MESSAGES, {}, True)


def test_demo_account_adds_up(account: dict[str, Any]) -> None:
    totals = account["totals"]
    for key in ("delivered", "lost", "nak_sqns", "repaired", "repaired_locally", "late"):
        assert totals[key] == sum(row[key] for row in account["receivers"]), key
    assert totals["delivered"] == 3 * MESSAGES
    assert 0 < totals["repaired_locally"] <= totals["repaired"]
    assert totals["local_share"] == totals["repaired_locally"] / totals["repaired"] > 0.5
    assert totals["source_nak_share"] == account["source"]["nak_sqns"] / totals["nak_sqns"] < 0.5
    # The packets that go down a tier are those that the tier above received.
    rows = {row["node"]: row for row in (*account["aggregators"], *account["repairers"])}
    assert account["source"]["odata"] == MESSAGES
    for name in ("subnet-1-aggregator", "subnet-2-repairer", "subnet-3-aggregator"):
        assert rows[name]["odata"] == MESSAGES, "a relay sends every packet down once"
    for name in ("subnet-1-repairer", "subnet-3-repairer"):
        assert rows[name]["odata"] == 0, "a repairer on the segment forwards no packet"
    for number, row in enumerate(account["receivers"], 1):
        senders = [rows[name] for name in (f"subnet-{number}-aggregator", f"subnet-{number}-repairer") if name in rows]
        sent = sum(one["rdata"] + one["rdata_forwarded"] for one in senders)
        assert row["repaired_locally"] <= sent, "every repair has a sender"
    for number in (1, 3):
        asked = account["receivers"][number - 1]["nak_sqns"] + rows[f"subnet-{number}-repairer"]["nak_sqns_out"]
        assert 0 < rows[f"subnet-{number}-aggregator"]["nak_sqns_in"] <= asked, "every NAK has a sender"


def test_demo_losses_match_the_request(account: dict[str, Any]) -> None:
    last_hop, uplink, kernel = (account["loss"][key] for key in ("last_hop", "uplink", "kernel"))
    assert last_hop["asked"] == pytest.approx(0.0396)
    assert uplink["asked"] == pytest.approx(0.002)
    # Every receiver sees every packet of its subnet; the losses of ODATA are a share of those.
    assert last_hop["seen"] > 3 * MESSAGES
    assert last_hop["measured"] == last_hop["lost"] / last_hop["seen"]
    assert abs(last_hop["measured"] / last_hop["asked"] - 1) <= last_hop["tolerance"]
    assert kernel["lost"] == sum(
        row["socket_drops"] for row in (account["source"], *account["aggregators"], *account["repairers"])
    )


def test_demo_account_keys_are_documented(account: dict[str, Any]) -> None:
    documented("demo", account, optional=("recorders", "killed"))
    documented("demo.totals", account["totals"])
    documented("demo.source", account["source"])
    for row in (*account["aggregators"], *account["repairers"]):
        documented("demo.source", row)
    for row in account["receivers"]:
        documented("demo.receivers[]", row)
    for row in account["loss"].values():
        documented("demo.loss.*", row)


# Every possible fault of an account: its place, and the text of the verdict.
WRONG = [
    ({"delivered": MESSAGES - 1}, "delivered 1999 of 2000"),
    ({"delivered": MESSAGES - 2, "lost": 2}, "delivered 1998 of 2000, lost 2"),
    ({"duplicates": 1}, "duplicates 1"),
    ({"out_of_order": 3}, "out_of_order 3"),
    ({"damaged": 1}, "damaged 1"),
    ({"sha256_ok": False}, "checksum differs"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[says for _, says in WRONG])
def test_demo_account_reports_every_kind_of_fault(account: dict[str, Any], change: dict[str, Any], says: str) -> None:
    spoilt = copy.deepcopy(account)
    spoilt["receivers"][1].update(change)
    assert find_problems(spoilt) == [f"receiver-2-1: {says}"]


@pytest.mark.parametrize(("share", "is_wrong"), [(0.79, True), (0.81, False), (1.19, False), (1.21, True), (0, True)])
def test_demo_loss_beyond_its_tolerance_is_a_problem(account: dict[str, Any], share: float, is_wrong: bool) -> None:
    spoilt = copy.deepcopy(account)
    spoilt["loss"]["last_hop"].update(measured=0.0396 * share, tolerance=0.2)
    assert bool(find_problems(spoilt)) == is_wrong


def test_demo_losses_changed_by_ctl_are_reported_and_excused(account: dict[str, Any]) -> None:
    """The deliveries are judged although the losses change during the demo.

    The change is that of `pgm ctl demo --node 'receiver-*' set loss=30%`.
    """
    changed = copy.deepcopy(account) | {"settings_changed": 2}
    changed["loss"]["last_hop"].update(measured=0.3)
    assert find_problems(changed) == []
    screen = Console(width=120)
    with screen.capture() as shown:
        screen.print(account_view(changed, 120))
    assert "settings changed during the run: 2; the losses may differ from the options" in shown.get()
    changed["receivers"][0].update(lost=1)
    assert find_problems(changed) == ["receiver-1-1: lost 1"]
    assert account["settings_changed"] == 0


def test_demo_random_deviation_of_losses_is_no_failure() -> None:
    """The accepted deviation for few packets is that of the injector itself."""
    loss, count = Impairment(0.02, 0.02, 8), 4000
    measured = [Injector(loss, str(seed)).draw(count).mean() for seed in range(400)]
    assert np.std(measured) == pytest.approx(loss.deviation(count), rel=0.15)
    assert Impairment(0.02).deviation(10_000) == pytest.approx((0.02 * 0.98 / 10_000) ** 0.5)
    assert Impairment().deviation(10) == 0


BROKEN_INJECTOR = """
import pgm.impairments

def draw(self, count):
    self.seen += count
    return None

pgm.impairments.Injector.draw = draw
"""


def test_demo_without_its_losses_fails(tmp_path: Path) -> None:
    """The injector is broken in every process of a real demo. The demo fails although everything is delivered."""
    (tmp_path / "sitecustomize.py").write_text(BROKEN_INJECTOR)
    path = f"{tmp_path}:{environment()['PYTHONPATH']}"
    done = pgm("demo", *SMALL, "--messages", "2000", env={"PYTHONPATH": path})
    assert done.code == 1, done
    assert re.search(
        r"^last-hop loss: asked 3.960%, measured 0.000% of [\d,]+ packets; the difference is more",
        done.out,
        re.MULTILINE,
    )
    assert "2,000 delivered, 0 lost" in done.out
    assert "every receiver got every message" not in done.out


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Yield a folder with a short path, which sockets need."""
    with tempfile.TemporaryDirectory(prefix="pgm-cli-") as name:
        yield Path(name)


def test_demo_on_a_small_terminal_is_not_cut(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo without losses shows a live picture, and an account with whole numbers, on 80 by 24 characters.

    Other commands find its nodes during the run.
    """
    monkeypatch.delenv("PGM_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_folder))
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))
    line = command("demo", *SMALL, "--loss", "0%", "--burst-loss", "0", "--uplink-loss", "0%")
    main, side = pty.openpty()
    subprocess.run(["stty", "cols", "80", "rows", "24"], stdin=side, check=True)
    env = environment(TERM="xterm", TMPDIR=str(short_folder))
    demo = subprocess.Popen(line, stdout=side, stderr=side, env=env, cwd=ROOT)
    os.close(side)
    octets, found = b"", []
    try:
        while chunk := _read(main):
            octets += chunk
            found = found or [one.name for one in tree_folders("demo") if len(sockets_in(one, "*.sock")) == 4]
        assert demo.wait(PATIENCE_S) == 0
    finally:
        demo.kill()
        demo.wait()
        os.close(main)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", octets.decode())
    lines = text.replace("\r", "\n").splitlines()
    assert all(len(line) <= 80 for line in lines), max(lines, key=len)
    assert "…" not in text
    assert any(" of 1 receivers have everything" in line for line in lines)
    (row,) = [line.split() for line in lines if line.startswith("receiver-1-1 ") and "equal" in line]
    assert row[1] == "1,000"
    assert "last-hop loss: asked 0.00%, measured 0.00% of 0 packets" in lines
    assert "1,000 delivered, 0 lost, 0 twice, 0 out of order" in lines
    assert "every receiver got every message once and in order" in lines
    assert found == ["demo"]
    assert tree_folders("demo") == []  # the demo has ended


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # a terminal reports in this way that no process writes to it
        return b""


@pytest.mark.parametrize(("subnets", "receivers"), [(1, 1), (3, 2), (3, 12), (1, 155), (60, 2000)])
def test_demo_tree_is_valid_at_every_size(subnets: int, receivers: int) -> None:
    plans = plan_all(loads(demo_topology(DemoTree(subnets, receivers))))
    roles = [plan.role for plan in plans.values()]
    assert roles.count(Role.RECEIVER) == receivers
    assert len(plans) == 1 + subnets + sum(number % 3 != 2 for number in range(1, subnets + 1)) + receivers
    assert digest(3, 100, 1) == digest(3, 100, 1) != digest(3, 100, 2)


def test_demo_recorded_archives_hold_every_message(tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    done = pgm("demo", "--messages", "1000", "--subnets", "2", "--receivers", "2", "--record", archives, "--json")
    assert done.code == 0, done
    documented("demo", done.json, optional=("killed",))
    for row in done.json["recorders"]:
        documented("demo.recorders[]", row)
        assert (row["messages"], row["lost"]) == (1000, {})
    listed = invoked("archive", "ls", archives, "--json").json["holdings"]
    assert [(one["segment"], one["rows"], one["closed"]) for one in listed] == [
        ("subnet-1", 1000, True),
        ("subnet-2", 1000, True),
    ]
    invoked("demo", "--record", archives).complains(2, "is not empty", "another folder")


def test_demo_kill_of_a_repairer_loses_nothing() -> None:
    """The relay of the subnet repairs instead."""
    done = pgm("demo", *SMALL, "--rate", "2Mbit/s", "--kill", "subnet-1-repairer", "--json")
    assert done.code == 0, done
    documented("demo", done.json, optional=("recorders",))
    assert done.json["killed"] == ["subnet-1-repairer"]
    assert done.json["source"]["nak_sqns"] <= done.json["totals"]["nak_sqns"]
    invoked("demo", "--kill", "source").complains(2, "no element 'source' to kill", "subnet-1-repairer")


@pytest.mark.parametrize("loss", ["2", "0.02"])
def test_demo_loss_without_a_unit_is_refused(loss: str) -> None:
    done = subprocess.run(command("demo", "--loss", loss), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"'{loss}' is not a percentage" in done.stderr
    assert '"2%"' in done.stderr
