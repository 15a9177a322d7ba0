"""`pgm doctor` on this machine, and in namespaces with faults."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from deploy.doctor import readings
from deploy.doctor.findings import Level
from deploy.doctor.machine import aes_instructions, clock_of_signatures, free_memory, key_advice
from deploy.doctor.network import card_offloads, igmp_version
from deploy.doctor.readings import gives_memory_back
from deploy.keys.inspection import SOON_DAYS
from pgm.net.keys.key_directory import place_of_plan
from pgm.net.keys.key_files import write_private_file
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from pgm.trust.node_identity import NodeIdentity
from pgm.trust.private_keys import PrivateFile
from pgm.units import SECOND
from tests.cli.command import environment, invoked
from tests.cli.test_json import documented
from tests.net.support.lab import ROOT, Host, lab, needs_namespaces
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Process, processes
from tests.unit.topology.trees import topology
from tests.unit.trust.keys import private_keys

PAGE = (ROOT / "docs/guide/operations.md").read_text()
TREE = """\
version = 1
name = "sick"
[streams.s]
data_port = 7500
rate = "8Mbit/s"
[segments.lan]
group = "239.192.77.1"
interface = "10.0.0.0/8"
[nodes.source]
role = "source"
segment = "lan"
address = "10.7.0.1"
streams = ["s"]
[nodes.relay]
role = "aggregator"
upstream = {{ segment = "lan", address = "{relay}" }}
downstream = [{{ segment = "floor", address = "192.168.8.1" }}]
parents = ["source"]
[segments.floor]
group = "239.192.77.2"
interface = "192.168.8.0/24"
[nodes."desk-*"]
role = "receiver"
segment = "floor"
parents = ["relay"]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(Place.new(), rate="8Mbit/s"))  # the buffers of any machine hold this rate for a while
    return file


def by_check(found: Mapping[str, Any], subject: str = "") -> dict[str, dict[str, Any]]:
    return {one["check"]: one for one in found["checks"] if subject in one["subject"]}


def test_doctor_finds_no_fault_in_a_loopback_tree(tree: Path) -> None:
    """Limits of the test machine do not keep this tree from working."""
    found = invoked("doctor", tree, "--probe", "--json").json
    documented("doctor", found)
    for row in found["checks"]:
        documented("doctor.checks[]", row)
        assert row["level"] in ("ok", "advice"), row
        assert bool(row["remedy"]) == (row["level"] == "advice"), row
    assert (found["ok"], found["nodes"], found["elsewhere"]) == (True, ["source", "desk-1"], [])
    rows = by_check(found)
    assert rows["multicast"]["found"] == "5 of 5 packets of 1472 octets came back"
    assert rows["MTU"]["found"] == str(readings.mtu_of("lo"))
    most = int(Path("/proc/sys/net/core/rmem_max").read_text())
    assert (rows["receive buffer"]["level"] == "ok") == (most >= 8 << 20)
    assert rows["GSO"]["level"] == rows["sockets"]["level"] == "ok"


def test_doctor_advises_cards_without_offloads() -> None:
    assert set(readings.offloads_of("lo")) == {"gso", "gro"}
    assert not readings.is_card("lo")
    (off,) = card_offloads("eth0", {"gso": True, "gro": False})
    assert (off.level, off.found, off.remedy) == (Level.ADVICE, "gso on, gro off", "ethtool -K eth0 gro on")
    (on,) = card_offloads("eth0", {"gso": True, "gro": True})
    assert (on.level, on.remedy) == (Level.OK, "")


def test_doctor_page_lists_the_checks_there_are(tree: Path) -> None:
    told = set(re.findall(r"^\| ([A-Za-z0-9 ]+) \| .* \| .* \|$", PAGE, re.MULTILINE)) - {"check", "setting", "look at"}
    source = "".join(path.read_text() for path in (ROOT / "deploy/doctor").glob("*.py"))
    made = set(re.findall(r'(?:ok|advice|fault|judged|_buffer)\(\s*"([^"]+)"', source))
    assert told == made | {"GSO", "GRO", "zfec", "pyarrow", "cryptography", "blake3", "pyspark", "IP protocol 113"}
    assert set(by_check(invoked("doctor", tree, "--json").json)) <= told


def test_doctor_checks_private_files_as_the_nodes_do(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGM_KEY_DIR", str(tree.parent / "keys"))
    assert "keys" not in by_check(invoked("doctor", tree, "--json").json)
    path = Path(invoked("keys", "new", tree, "--node", "source", "--write", "--json").json["private_file"])
    assert by_check(invoked("doctor", tree, "--json").json)["keys"]["level"] == "ok"
    path.chmod(0o644)
    row = by_check(invoked("doctor", tree, "--json").json)["keys"]
    assert (row["level"], row["subject"]) == ("fault", "source")
    assert "is open to other users" in row["found"]


def test_doctor_compares_the_clock_with_the_age_of_signatures() -> None:
    for error_s, level in ((0.01, Level.OK), (30.0, Level.OK), (31.0, Level.ADVICE), (None, Level.ADVICE)):
        found = clock_of_signatures(error_s, 60 * SECOND)
        assert found.level is level
        assert "signature_age, 1min" in found.wanted


def test_doctor_advises_a_rotation_and_names_unlisted_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGM_KEY_DIR", str(tmp_path))
    listed, other = private_keys(1), private_keys(2)
    plan = attrs.evolve(plan_node(topology(), "exchange"), identity=NodeIdentity((listed.public,)))
    place = place_of_plan(plan)
    for keys in (listed, other):
        write_private_file(place, PrivateFile(plan.topology, plan.name, keys))
    found = {one.found: one for one in key_advice(plan, listed.public.end_day - timedelta(days=SOON_DAYS))}
    unlisted = next(one for text, one in found.items() if other.public.id in text)
    assert f"rm {place.path_of(other.public.id)}" in unlisted.remedy
    assert found[f"they end on {listed.public.end_day}"].remedy == "pgm keys rotate FILE --node exchange --write"
    assert len(list(key_advice(plan, listed.public.end_day - timedelta(days=SOON_DAYS + 1)))) == 1


def test_doctor_looks_for_aes_instructions() -> None:
    assert aes_instructions("flags : fpu aes avx").level is Level.OK
    assert aes_instructions("flags : fpu avx vaes").level is Level.ADVICE


def test_doctor_advises_the_version_of_igmp_that_clouds_know() -> None:
    assert igmp_version("eth0", 3, 0, "Amazon EC2").remedy.startswith(
        "sysctl -w net.ipv4.conf.eth0.force_igmp_version=2"
    )
    assert igmp_version("eth0", 3, 0, "Google").level is Level.ADVICE
    assert igmp_version("eth0", 2, 0, "Google").level is Level.ADVICE  # a querier asked, and may stop
    assert igmp_version("eth0", 2, 2, "Google").level is Level.OK
    assert igmp_version("eth0", 3, 0, "Dell Inc.").level is Level.OK


def test_settings_of_a_vlan_are_found_behind_the_dot_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "read", {"/proc/sys/net/ipv4/conf/eth0.100/rp_filter": "1"}.get)
    assert readings.interface_sysctl("eth0.100", "rp_filter") == 1
    remedy = igmp_version("eth0.100", 3, 0, "Google").remedy
    assert remedy.startswith("sysctl -w net.ipv4.conf.eth0/100.force_igmp_version=2")  # as sysctl(8) takes it


def test_the_examples_of_the_page(tree: Path) -> None:
    block = next(one for one in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "pgm doctor" in one)
    lines = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    assert len(lines) == 5
    for words in lines:
        here = {"tree.toml": str(tree), "desk-7": "desk-1", "10": "0.1"}  # seconds
        done = invoked(*[here.get(word, word) for word in words])
        assert done.code == 0, done


def test_doctor_prints_passed_checks_only_with_all(tree: Path) -> None:
    short, whole = invoked("doctor", tree), invoked("doctor", tree, "--all")
    assert (short.code, whole.code) == (0, 0)
    assert "ok: sockets (source on lan, desk-1 on lan): lo: " in whole.out
    assert "ok: " not in short.out.replace(" ok, advice", "")
    assert re.fullmatch(r"\d+ ok, advice: \d+, faults: 0", short.out.splitlines()[-1])
    assert short.out.splitlines()[-1] == whole.out.splitlines()[-1]


def test_doctor_names_the_holder_of_a_port() -> None:
    place = Place.new()
    with processes(one_segment(place), f"t{place.number}") as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGM_RUNTIME_DIR", str(running.folder))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind((place.address(1), place.port))
            process = running.start("desk-1")
            process.line_with("ready:")
            done = invoked("doctor", running.file, "--json")
        assert done.code == 1
        rows = by_check(done.json, "source on lan"), by_check(done.json, "desk-1 on lan")
        assert rows[0]["sockets"]["level"] == "fault"
        assert f"in use by this process, {os.getpid()}" in rows[0]["sockets"]["found"]
        assert rows[1]["sockets"] == {
            "check": "sockets",
            "subject": "desk-1 on lan",
            "level": "ok",
            "found": f"the node runs already, as process {process.process.pid}",
            "wanted": "",
            "remedy": "",
        }


def test_doctor_reports_a_small_buffer_as_a_fault(tmp_path: Path) -> None:
    """The buffer that a machine grants varies; no machine grants this size."""
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(Place.new(), rate="1000Gbit/s", parameters='so_rcvbuf = "1GiB", txw_bytes = "64MiB"'))
    done = invoked("doctor", file)
    row = by_check(invoked("doctor", file, "--json").json)["receive buffer"]
    assert (done.code, row["level"]) == (1, "fault"), row
    assert row["remedy"].startswith(f"sysctl -w net.core.rmem_max={1 << 30}")
    assert f"fault: receive buffer (this machine): {row['found']}; wanted: 1GiB\n  remedy: {row['remedy']}" in done.out


def test_doctor_wrong_options_are_refused(tree: Path) -> None:
    invoked("doctor", "--node", "desk-1").complains(2, "--node and --probe need a topology file")
    invoked("doctor", tree, "--listen", "1").complains(2, "--listen needs --probe")
    invoked("doctor", ROOT / "deploy/topologies/trading-floor.toml").complains(2, "has an address of this machine")
    alone = invoked("doctor", "--json").json
    assert (alone["nodes"], "sockets" in by_check(alone)) == ([], False)


_MOUNT = ("mount", "-t", "sysfs", "none", "/sys")


def _start(host: Host, file: Path, *words: str, has_sys: bool = False) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "deploy", "doctor", str(file), *words, "--json"]
    if has_sys:  # /sys of this namespace, as a machine of its own would have it
        line = ["unshare", "-m", "sh", "-c", f"{shlex.join(_MOUNT)} && exec {shlex.join(line)}"]
    pipe = subprocess.PIPE
    return subprocess.Popen(host.wrap(line), stdout=pipe, stderr=pipe, text=True, env=environment(), cwd=ROOT)


def _checks_of(process: subprocess.Popen[str], code: int) -> dict[str, Any]:
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, out + err
    found: dict[str, Any] = json.loads(out)
    return found


@needs_namespaces
def test_doctor_reports_faults_of_machines(tmp_path: Path) -> None:
    """The faults are a short MTU, a strict filter, a firewall and a bridge without a querier.

    Two further machines receive each other's packets.
    """
    file = tmp_path / "tree.toml"
    file.write_text(TREE.format(relay="10.9.0.2"))
    with lab() as net:
        one, other = net.host("one"), net.host("other")
        name, _ = net.join(one, "10.7.0.1/24", other, "10.7.0.2/24", mtu=1400)
        one.run("ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "1")
        one.run("ip", "link", "set", name, "master", "br0")
        one.run("sysctl", "-qw", f"net.ipv4.conf.{name}.rp_filter=1")
        rules = "table inet f { chain i { type filter hook input priority 0; ip daddr 239.192.77.1 drop; }; }"
        one.run("nft", rules)
        # A container that hides parts of /sys forbids another mount of it.
        has_sys = subprocess.run(one.wrap(["unshare", "-m", *_MOUNT]), capture_output=True, check=False).returncode == 0
        found = _checks_of(_start(one, file, "--node", "source", "--node", "relay", "--probe", has_sys=has_sys), 1)
        rows = by_check(found, "lan")
        assert {key for key, row in rows.items() if row["level"] == "fault"} == {
            "sockets",  # the address of the relay is not of this machine
            "MTU",
            "reverse path",
            "multicast",
        }
        assert (rows["MTU"]["found"], rows["MTU"]["remedy"].split(",")[0]) == ("1400", f"ip link set {name} mtu 1500")
        assert "10.9.0.2 may be dropped" in rows["reverse path"]["found"]
        assert rows["multicast"]["found"].startswith("0 of 5 packets")
        assert "239.192.77.1 udp dport" in rows["multicast"]["remedy"]
        assert by_check(found, name).get("IGMP snooping", {}).get("level") == ("advice" if has_sys else None)
        floor = by_check(found, "relay on floor")["interface"]
        assert (floor["level"], "no IPv4 interface matches" in floor["found"]) == ("fault", True)
        one.run("nft", "flush ruleset")
        one.run("ip", "link", "set", name, "nomaster")
        one.run("sysctl", "-qw", f"net.ipv4.conf.{name}.rp_filter=0")
        for host in (one, other):
            host.run("ip", "link", "set", "mtu", "1500", "dev", name if host is one else "vone")
        file.write_text(TREE.format(relay="10.7.0.2"))
        started = [_listening(host, file) for host in (one, other)]
        try:
            for process in started:
                process.line_with(f"heard {socket.gethostname()} on lan")
            for process in started:
                process.process.send_signal(signal.SIGINT)
            for process, code in zip(started, (0, 1), strict=True):  # the other node is not the source
                assert process.wait() == code, process.log
                row = by_check(json.loads(process.printed[-1]), "lan")["other machines"]
                assert row["found"] == f"heard {socket.gethostname()}"
        finally:
            for process in started:
                process.close()


def _listening(host: Host, file: Path) -> Process:
    words = ["doctor", str(file), "--node", "source", "--probe", "--listen", "60", "--json"]
    return Process(host.name, words, host)


@pytest.mark.parametrize(("device", "bit", "gives"), [("0x0005", 5, True), ("0x0005", 4, False), ("0x0001", 5, False)])
def test_doctor_detects_a_free_page_reporting_balloon(tmp_path: Path, device: str, bit: int, gives: bool) -> None:
    folder = tmp_path / "virtio0"
    folder.mkdir()
    (folder / "device").write_text(f"{device}\n")
    (folder / "features").write_text("".join(str(int(number == bit)) for number in range(64)) + "\n")
    assert gives_memory_back(tmp_path) is gives
    assert not gives_memory_back(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("rate", "level"), [("8Mbit/s", Level.OK), ("8Gbit/s", Level.ADVICE), ("80Gbit/s", Level.ADVICE)]
)
def test_doctor_advises_prefault_where_free_memory_is_returned(rate: str, level: Level) -> None:
    text = TREE.format(relay="10.7.0.2").replace("8Mbit/s", rate)
    plans = [plan_node(loads(text), name) for name in ("source", "desk-1")]
    found = free_memory(plans, is_given_back=True)
    assert found.level is level
    assert free_memory(plans, is_given_back=False).level is Level.OK
    if level is Level.ADVICE:
        assert found.subject == "desk-1"
        octets = 200_000_000 if rate == "8Gbit/s" else plans[1].parameters.rxw_bytes  # the limit of the window
        assert f"rxw_warm_bytes = {octets} " in found.remedy
