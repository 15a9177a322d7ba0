"""Units and kernel settings of `pgm render`: systemd accepts them, and they agree with the topology."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from deploy.render.systemd import memory_of, unit_text
from pgm.topology.check import load_checked
from pgm.topology.load import loads
from pgm.topology.plan import plan_all, plan_node
from pgm.units import MIB
from tests.cli.command import CommandResult, invoked
from tests.net.support.lab import ROOT

EXAMPLES = sorted(path.name for path in (ROOT / "deploy" / "topologies").glob("*.toml"))
FLOOR = ROOT / "deploy" / "topologies" / "trading-floor.toml"
NEEDS_SYSTEMD = "needs systemd-analyze to judge units: apt-get install systemd"


def verify(folder: Path) -> str:
    """Return systemd's complaints about the units of a folder.

    systemd reports unknown lines without changing its exit code.
    """
    if shutil.which("systemd-analyze") is None:
        pytest.skip(NEEDS_SYSTEMD)
    units = sorted(folder.glob("*.service"))
    assert units
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    return said if said or done.returncode == 0 else f"exit code {done.returncode}"


def rendered(folder: Path, file: Path, *options: str) -> CommandResult:
    done = invoked("render", file, "--out", folder, "--command", sys.executable, *options)
    assert done.code == 0, done
    assert f"systemd-analyze verify {folder}/*.service" in done.err
    return done


def test_systemd_accepts_every_unit_of_an_example(tmp_path: Path) -> None:
    rendered(tmp_path, FLOOR)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "60-pgm.conf",
        "pgm-agent-trading-floor.service",
        "pgm-trading-floor-core-repairer.service",
        *(f"pgm-trading-floor-desk-{number}.service" for number in range(1, 5)),
        "pgm-trading-floor-floor-2-aggregator.service",
        "pgm-trading-floor-floor-2-repairer.service",
    ]
    assert verify(tmp_path) == ""


def test_units_expose_little(tmp_path: Path) -> None:
    """The score of systemd-analyze runs from 0 to 10. Its largest parts are the network and the sockets of a node."""
    rendered(tmp_path, FLOOR)
    units = [tmp_path / f"pgm-{name}.service" for name in ("agent-trading-floor", "trading-floor-desk-1")]
    units.append(tmp_path / "pgm-trading-floor-floor-2-repairer.service")
    assert verify(tmp_path) == ""
    judged = ["systemd-analyze", "security", "--offline=true", "--threshold=15", *units]
    done = subprocess.run(judged, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr
    home = tmp_path / "units"
    invoked("render", FLOOR, "--node", "desk-1", "--out", home, "--command", "/home/op/bin/pgm")
    assert "ProtectHome=read-only\n" in next(home.glob("*.service")).read_text()


def test_unit_of_an_agent_gets_secrets_unless_the_tree_is_local(tmp_path: Path) -> None:
    rendered(tmp_path, FLOOR)
    text = (tmp_path / "pgm-agent-trading-floor.service").read_text()
    secrets = "--token-file %d/token --tls-cert %d/agent.pem --tls-key %d/agent-key.pem"
    assert f"ExecStart={sys.executable} agent {FLOOR} --bind 0.0.0.0 {secrets}\n" in text
    assert "LoadCredential=agent-key.pem:/etc/pgm/agent-key.pem\n" in text
    local = ROOT / "deploy/topologies/loopback-demo.toml"
    text = invoked("render", local, "--command", "/opt/pgm", "--json").json["pgm-agent-loopback-demo.service"]
    assert f"ExecStart=/opt/pgm agent {local}\n" in text
    assert "LoadCredential" not in text


def test_systemd_reports_a_broken_unit(tmp_path: Path) -> None:
    rendered(tmp_path, FLOOR, "--node", "desk-1")
    unit = tmp_path / "pgm-trading-floor-desk-1.service"
    unit.write_text(unit.read_text().replace("Type=notify", "Type=notifie"))
    assert "Failed to parse service type" in verify(tmp_path)


def test_a_path_that_means_something_to_systemd_is_quoted(tmp_path: Path) -> None:
    odd = tmp_path / 'my trees 50%\\"a$b'
    odd.mkdir()
    file = odd / "tree.toml"
    file.write_text(FLOOR.read_text())
    units = tmp_path / "units"
    rendered(units, file, "--node", "desk-1")
    assert verify(units) == ""
    (line,) = [
        one
        for one in (units / "pgm-trading-floor-desk-1.service").read_text().splitlines()
        if one.startswith("ExecStart")
    ]
    path = str(file).replace("%", "%%").replace("$", "$$").replace("\\", "\\\\").replace('"', '\\"')
    assert line == f'ExecStart={sys.executable} run "{path}" --node desk-1'


@pytest.mark.parametrize("name", EXAMPLES)
def test_render_unit_agrees_with_the_topology(name: str) -> None:
    file = ROOT / "deploy" / "topologies" / name
    plan = next(iter(plan_all(load_checked(file)).values()))
    text = unit_text(plan, file, "/opt/pgm")
    assert f"ExecStart=/opt/pgm run {file} --node {plan.name}\n" in text
    assert f"MemoryMax={memory_of(plan) // MIB + 1}M\n" in text
    assert "$" not in text.replace("$MAINPID", "")
    needs_raw = any(segment.transport == "ip" for segment in plan.segments)
    assert f"AmbientCapabilities={'CAP_NET_RAW' if needs_raw else ''}\n" in text


def test_a_node_that_records_may_write_where_it_records(tmp_path: Path) -> None:
    plan = plan_node(load_checked(FLOOR), "desk-1")
    recording = attrs.evolve(plan, record_directory="/var/lib/pgm/desk-1", telemetry="/srv/of all")
    text = unit_text(recording, FLOOR, sys.executable)
    lines = text.splitlines()
    assert {"StateDirectory=pgm/desk-1", 'ReadWritePaths="/srv/of all"', "OOMPolicy=continue"} <= set(lines)
    assert f"ExecStart={sys.executable} record {FLOOR} --node desk-1" in lines
    assert memory_of(recording) > memory_of(plan) + plan.parameters.record_queue_bytes
    (tmp_path / "pgm-desk-1.service").write_text(text)
    assert verify(tmp_path) == ""


def test_a_repairer_may_write_its_cache_file() -> None:
    plan = plan_node(load_checked(FLOOR), "floor-2-repairer")
    lines = unit_text(plan, FLOOR, sys.executable).splitlines()
    assert {"RuntimeDirectory=pgm", "RuntimeDirectoryPreserve=yes"} <= set(lines)
    elsewhere = attrs.evolve(plan, cache_directory="/srv/cache")
    assert "ReadWritePaths=/srv/cache" in unit_text(elsewhere, FLOOR, sys.executable).splitlines()


def test_memory_follows_the_limits_of_the_role() -> None:
    plans = plan_all(load_checked(FLOOR))
    cache = plans["core-repairer"].parameters.cache_bytes
    assert memory_of(plans["core-repairer"]) > cache
    assert memory_of(plans["floor-2-aggregator"]) < memory_of(plans["desk-1"]) < memory_of(plans["core-repairer"])


def test_a_receiver_of_two_streams_may_hold_both() -> None:
    one = plan_node(load_checked(FLOOR), "desk-1")
    two = attrs.evolve(one, streams=one.streams * 2)
    assert memory_of(two) - memory_of(one) >= one.parameters.rxw_bytes


def test_render_unit_restarts_unless_the_file_is_wrong() -> None:
    """An interface may come up late at boot. A wrong file stays wrong, and `run` reports that by its exit code."""
    text = unit_text(plan_node(load_checked(FLOOR), "desk-1"), FLOOR, "/opt/pgm")
    assert {"StartLimitIntervalSec=0", "Restart=on-failure", "RestartPreventExitStatus=2"} <= set(text.splitlines())
    assert invoked("run", FLOOR, "--node", "no-desk").code == 2
    assert invoked("run", FLOOR, "--node", "desk-1").code == 1  # this machine has no such interface


def test_ip_protocol_113_gets_the_one_capability_that_it_needs() -> None:
    text = FLOOR.read_text().replace('group = "239.192.0.1"', 'transport = "ip"\ngroup = "239.192.0.1"')
    topology = loads(text, str(FLOOR))
    for node, capability in (("core-repairer", "CAP_NET_RAW"), ("desk-1", "")):
        unit = unit_text(plan_node(topology, node), FLOOR, "/opt/pgm")
        assert f"AmbientCapabilities={capability}\nCapabilityBoundingSet={capability}\n" in unit


def test_kernel_settings_are_the_largest_that_a_node_asks_for(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    text = FLOOR.read_text()
    file.write_text(text.replace('role = "source"', 'role = "source"\nparameters = { so_rcvbuf = "96MiB" }', 1))
    asked = {node: invoked("render", file, "--node", node).out for node in ("exchange", "desk-1")}
    assert f"net.core.rmem_max = {96 * MIB}\n" in asked["exchange"]
    assert f"net.core.rmem_max = {16 * MIB}\n" in asked["desk-1"]
    assert "### pgm-trading-floor-exchange.service\n" in asked["exchange"]  # a source with a node name gets a unit


def test_a_tree_of_sources_alone_has_nothing_to_render(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    text = FLOOR.read_text()
    file.write_text(text[: text.index("[nodes.core-repairer]")])
    invoked("render", file).complains(2, "nothing but sources", "name them with --node")


def test_render_takes_the_former_name_of_its_folder(tmp_path: Path) -> None:
    done = invoked("render", FLOOR, "--node", "desk-1", "--output", tmp_path / "units")
    assert (done.code, "pgm: the option --output is now --out" in done.err) == (0, True), done
    assert (tmp_path / "units" / "60-pgm.conf").exists()
