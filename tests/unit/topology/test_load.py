"""Form of the topology file: parsed values, and every error of form before any check of meaning."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import TopologyError
from pgm.impairments import Impairment
from pgm.parameters import ROWS
from pgm.topology.check import check
from pgm.topology.describe import topology_json
from pgm.topology.load import load, loads
from pgm.topology.model import CacheTable, NodePlace, WindowTable
from pgm.topology.node_plan import Role
from pgm.topology.plan import plan_all
from pgm.topology.reading import read_text
from pgm.units import GIB, MIB, MILLISECOND, SECOND
from tests.unit.topology.trees import FILE, GOOD, changed, line_of, topology


def problems_of(text: str) -> tuple[str, ...]:
    with pytest.raises(TopologyError) as caught:
        loads(text, FILE)
    return caught.value.problems


def test_good_file_becomes_values():
    found = topology()
    assert (found.version, found.name, found.profile, found.rtt) == (1, "good", "lan", MILLISECOND)
    assert found.streams["quotes"].rate == 50_000_000
    assert found.streams["quotes"].window == WindowTable("txw_secs", 10 * SECOND)
    assert found.segments["core"].own_port == found.segments["core"].port == 3056
    relay = found.nodes["relay"]
    assert relay.role is Role.AGGREGATOR
    assert relay.upstream == NodePlace("core", "10.0.0.12")
    assert relay.is_relay
    assert found.nodes["core-repairer"].cache == CacheTable(4 * GIB, 60 * SECOND)
    desks = found.nodes["desk-*"]
    assert desks.is_pattern
    assert desks.addresses is not None
    assert desks.addresses.size == 10
    assert (found.path, found.lines.of(("name",))) == (FILE, 2)


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ('"90ms"', WindowTable("txw_secs", 90 * MILLISECOND)),
        ('"256MiB"', WindowTable("txw_bytes", 256 * MIB)),
        ("20000", WindowTable("txw_sqns", 20_000)),
    ],
)
def test_window_in_each_measure(written: str, window: WindowTable):
    assert topology(('"10s"', written)).streams["quotes"].window == window


def test_losses_are_read():
    found = topology(
        (
            'interface = "10.0.1.0/24"',
            'interface = "eth0"\nloss = { loss = "2%", burst_loss = "1%", burst_length = 9 }',
        ),
        ('address = "10.0.1.1" }', 'address = "10.0.1.1", loss = { reorder = "3%", reorder_ivl = "5ms" } }'),
    )
    assert found.segments["floor"].loss == Impairment(0.02, 0.01, 9.0)
    assert found.nodes["relay"].downstream[0].loss == Impairment(reorder=0.03, reorder_ivl=5 * MILLISECOND)


def test_header_form_of_downstream_is_the_same():
    header = '[[nodes.relay.downstream]]\nsegment = "floor"\naddress = "10.0.1.1"\n'
    inline = 'downstream = [{ segment = "floor", address = "10.0.1.1" }]\n'
    moved = changed((inline, ""), ("[nodes.standby]", header + "[nodes.standby]"))
    assert loads(moved).nodes["relay"] == topology().nodes["relay"]


# The fault, a mark on its line, and the text of the message.
# fmt: off
WRONG = [
    (("version = 1", "version = 2"), "version", "version: 2 is no known version of the format (write version = 1)"),
    (("version = 1\n", ""), 'name = "good"', "the file has no version (add version = 1)"),
    (('name = "good"', "name = 5"), "name = 5", 'name: 5 is not text (write it in quotes, as in "core")'),
    (('name = "good"', 'name = "good"\nnmae = 5'), "nmae", "nmae: unknown key 'nmae' (did you mean 'name'?)"),
    (('name = "good"', 'name = "good"\nprofile = "wam"'), "wam", "profile: 'wam' is unknown (did you mean 'wan'?)"),
    (('name = "good"', 'name = "good"\nkeys.relay = []'), "keys.relay", "keys.relay: a list of 0 public keys (list the current keys"),
    (('name = "good"', 'name = "good"\nkeys.relay = ["a", "b", "c"]'), "keys.relay", "keys.relay: a list of 3 public keys"),
    (('name = "good"', 'name = "good"\nkeys.relay = ["a"]'), "keys.relay", "keys.relay[0]: 'a' is not a line of public keys"),
    (('name = "good"', 'name = "good"\nkeys.relay = "pgm1"'), "keys.relay", "keys.relay: 'pgm1' is not a list"),
    (('name = "good"', 'name = "good"\nrevoked.x = ""'), "revoked.x", "revoked.x: 'x' is not the id of keys (the id is the second word"),
    (('name = "good"', 'name = "good"\nrtt = "1h"'), "1h", "rtt = 1h is out of range (choose from 1us to 4s)"),
    (('name = "good"', 'name = "good"\nrepair_budget = 5'), "_budget", "repair_budget = 5 has no unit"),
    (("7500", '"7500"'), "data_port", "streams.quotes.data_port: '7500' is not a port (write a whole number from 1 to 65535"),
    (("7500", "70000"), "data_port", "70000 is not a port"),
    (("7500", "true"), "data_port", "True is not a port"),
    (("data_port = 7500\n", ""), "streams.quotes", "streams.quotes has no data_port (add data_port = 7500)"),
    (("400Mbit/s", "400Mbps"), "rate", "streams.quotes.rate: '400Mbps' is not a rate (write a number and one of bit/s"),
    (("400Mbit/s", "1bit/s"), "rate", "is out of range"),
    (('"400Mbit/s"', f'"{"9" * 400}B/s"'), "rate", "is not a rate (write a number"),
    (('"10s"', "0"), "window", "a window of 0 keeps nothing"),
    (('"10s"', "1.5"), "window", "1.5 is not a window"),
    (('window = "10s"', 'order = "sorted"'), "order", "streams.quotes.order: 'sorted' is unknown"),
    (('window = "10s"', 'order = "orderd"'), "order", "did you mean 'ordered'?"),
    (('window = "10s"', 'nak_bo_ivl = "10ms"'), "nak_bo", "it is a parameter: write parameters = { nak_bo_ivl = ... }"),
    (('window = "10s"', "parameters = { nak_bo_ivl = 5 }"), "nak_bo", 'nak_bo_ivl = 5 has no unit (write it as in "10ms")'),
    (('window = "10s"', 'parameters = { nak_b_ivl = "5ms" }'), "nak_b_ivl", "unknown parameter 'nak_b_ivl' (did you mean 'nak_bo_ivl'?)"),
    (('window = "10s"', 'parameters = { nak_bo_ivl = "5h" }'), "nak_bo", "nak_bo_ivl = 5h is out of range (choose from 100us to 1min)"),
    (('window = "10s"', "parameters = { gso = 1 }"), "gso", "gso = 1 is neither true nor false (write true or false)"),
    (('window = "10s"', f"parameters = {{ rxw_gaps = {1 << 62} }}"), "rxw_gaps", "is out of range"),
    (("239.192.0.1", "239.192.0.256"), "256", "segments.core.group: '239.192.0.256' is not an IP address"),
    (("10.0.0.0/24", "10.0.0.0/33"), "/33", "segments.core.interface: '10.0.0.0/33' is not a network"),
    (("10.0.0.0/24", "an interface of mine"), "mine", "is not an interface name"),
    (('interface = "10.0.0.0/24"\n', ""), "segments.core", 'segments.core has no interface (add interface = "10.0.0.0/24")'),
    (('interface = "10.0.0.0/24"', 'interface = "lo"\nloss = { loss = "101%" }'), "101%", "segments.core.loss.loss: '101%' is more than 100 %"),
    (('interface = "10.0.0.0/24"', 'interface = "lo"\nloss = { lost = "1%" }'), "lost", "unknown key 'lost' (did you mean 'loss'?)"),
    (('interface = "10.0.0.0/24"', "interface = \"lo\"\nloss = { burst_length = 0.5 }"), "burst_", "0.5 is not a mean length of bursts"),
    (('role = "source"', 'role = "sauce"'), "sauce", "nodes.exchange.role: 'sauce' is unknown (did you mean 'source'?)"),
    (('role = "source"\n', ""), "nodes.exchange", "nodes.exchange has no role"),
    (('parents = ["exchange"]', 'parents = "exchange"'), 'parents = "exchange"', "nodes.core-repairer.parents: 'exchange' is not a list"),
    (('parents = ["exchange"]', 'parents = [\n"exchange",\n7, # here\n]'), "# here", "nodes.core-repairer.parents[1]: 7 is not text"),
    (('address = "10.0.0.12" }', 'adress = "10.0.0.12" }'), "adress", "unknown key 'adress' (did you mean 'address'?)"),
    (('"core", address = "10.0.0.12" }', '"core" }'), '"core" }', 'nodes.relay.upstream has no address (add address = "10.0.0.12")'),
    (("seconds = 60", 'seconds = "60s"'), "60s", "nodes.core-repairer.cache.seconds: '60s' is not a number of seconds"),
    (("4GiB", "4GB!"), "4GB!", "is not a size"),
    (("count = 4", "count = -4"), "-4", "nodes.\"desk-*\".count: -4 is not a number of nodes"),
    (("10.0.1.10-10.0.1.19", "10.0.1.19-10.0.1.10"), "addresses", "ends before it begins (write the lower address first)"),
    (('"10.0.1.10-10.0.1.19"', "[]"), "addresses", "an empty list has no addresses"),
    (("count = 4", f"count = 0x{'f' * 5000}"), "0xfff", "a number beyond 64 bits"),
    (('name = "good"', 'name = "good"\nnodes = 5'), "nodes = 5", None),
    (('"10s"', "10s"), "window", None),
    (('name = "good"', 'name = "good'), 'name = "good', None),
]
# fmt: on


@pytest.mark.parametrize(("change", "mark", "says"), WRONG)
def test_wrong_form_is_reported_with_its_line(change: tuple[str, str], mark: str, says: str | None):
    text = changed(change)
    found = problems_of(text)
    assert len(found) == 1
    line = next(number for number, one in enumerate(text.splitlines(), 1) if mark in one)
    if says is None:  # not TOML: the text is tomllib's
        assert re.fullmatch(rf"{FILE}:\d+: .+ \(TOML is described at https://toml\.io\)", found[0])
        return
    assert found[0].startswith(f"{FILE}:{line}: ")
    assert says in found[0]


def test_all_problems_come_at_once_in_the_order_of_the_file():
    text = changed(("version = 1", "version = 9"), ("7500", "0"), ('"10s"', '"10sec"'), ("count = 4", "cuont = 4"))
    found = problems_of(text)
    lines = [int(one.split(":")[1]) for one in found]
    assert lines == [line_of(text, mark) for mark in ("version", "data_port", "10sec", "cuont")]


def test_list_with_several_faults_is_read_to_its_end():
    text = changed(('[{ segment = "floor", address = "10.0.1.1" }]', '[7, { segment = "floor", adress = 5 }]'))
    found = problems_of(text)
    assert [one.split(": ", 1)[1].split(" (")[0] for one in found] == [
        "nodes.relay.downstream[0]: 7 is not a table",
        "nodes.relay.downstream[1].adress: unknown key 'adress'",
    ]


def test_syntax_errors_name_their_line():
    assert problems_of("version = 1\nname = \n")[0].startswith(f"{FILE}:2: ")
    assert problems_of("version = 1\nname = 'x\n")[0].startswith(f"{FILE}:2: ")
    assert problems_of("version = 1\n[a\n")[0].startswith(f"{FILE}:2: ")
    assert problems_of("a = [\n1,\n2")[0].startswith(f"{FILE}:3: ")
    assert "(at " not in problems_of("a = [\n1,\n2")[0]


def test_load_unreadable_file_is_an_error(tmp_path):
    with pytest.raises(TopologyError, match=r"absent.toml.*No such file.*give the path of a topology file"):
        load(tmp_path / "absent.toml")
    with pytest.raises(TopologyError, match="Is a directory"):
        load(tmp_path)
    with pytest.raises(TopologyError, match="null"):
        load("a\0b")
    (tmp_path / "latin").write_bytes(b"name = '\xe9'")
    with pytest.raises(TopologyError, match=r"latin:1: octet 8 is not UTF-8 \(save the file as UTF-8\)"):
        load(tmp_path / "latin")


def test_byte_order_mark_is_no_matter(tmp_path):
    (tmp_path / FILE).write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load(tmp_path / FILE).name == "good"


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 5000 + "]" * 5000, ".".join("a" * 5000) + " = 1", "a = " + "{a=" * 20 + "1" + "}" * 20]
)
def test_endless_nesting_is_an_error_like_others(text: str):
    assert "nested too deeply" in problems_of(text)[0]


def test_profiles_stay_within_the_bounds_of_the_table():
    for profile in ("lan", "wan", "lossy", "legacy"):
        for rtt in ("1us", "1ms", "300ms", "4s"):
            for budget in ("1ms", "1h"):
                head = f'name = "good"\nprofile = "{profile}"\nrtt = "{rtt}"\nrepair_budget = "{budget}"'
                for plan in plan_all(topology(('name = "good"', head))).values():
                    for key, _ in plan.reasons:
                        value = getattr(plan.parameters, key)
                        assert isinstance(value, str) or ROWS[key].low <= value <= ROWS[key].high


# Any text gives only TopologyError


def survives(text: str) -> None:
    reading = read_text(text, FILE)
    if reading.problems:
        assert all(re.match(rf"{FILE}:\d+: ", one) for one in problems_of(text))
    found = reading.topology
    if found is None:
        return
    report = check(found)
    for problem in (*report.errors, *report.warnings):
        assert problem.message
        assert problem.remedy
    if report.is_good and not reading.problems:
        assert topology_json(found)["nodes"] is not None
        plan_all(found, {node.name: 2 for node in found.nodes.values() if node.is_pattern and node.addresses is None})


@given(st.text(max_size=200))
def test_any_text_loads_or_is_reported(text: str):
    survives(text)


LINES = GOOD.splitlines()


@given(st.data())
def test_shuffled_lines_load_or_are_reported(data: st.DataObject):
    lines = list(LINES)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        other = data.draw(st.sampled_from(LINES))
        what = data.draw(st.integers(0, 2))
        lines[at : at + (what != 2)] = [] if what == 0 else [other]
    survives("\n".join(lines))


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.integers(-5, 70_000),
        st.booleans(),
        st.floats(allow_nan=False),
        st.text(max_size=8),
        st.sampled_from(
            ["core", "floor", "relay", "quotes", "10.0.0.11", "10.0.1.0/24", "5ms", "1GiB", "2%", "::1", "lo", "*"]
        ),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["segment", "address", "loss", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.data())
def test_any_value_in_any_place_loads_or_is_reported(data: st.DataObject):
    document = tomllib.loads(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        table = document
        while True:
            key = data.draw(st.sampled_from([*sorted(table), "parents", "cache", "nak_bo_ivl"]))
            if not isinstance(table.get(key), dict) or data.draw(st.integers(0, 3)) == 0:
                break
            table = table[key]
        table[key] = data.draw(VALUES)
    survives(spelled(document))


def spelled(document: dict[str, Any]) -> str:
    """Return the document as TOML with inline tables."""
    return "".join(f"{_quoted(key)} = {_spell(value)}\n" for key, value in document.items())


def _spell(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_quoted(key)} = {_spell(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_spell, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    return '"' + "".join(one if one.isalnum() or one in " .-*_/:%" else f"\\U{ord(one):08x}" for one in text) + '"'


def test_unicast_leg_needs_neither_group_nor_interface():
    leg = 'group = "239.192.0.2"\ninterface = "10.0.1.0/24"'
    assert topology((leg, "unicast = true")).segments["floor"].unicast
    assert len(problems_of(changed((leg, "unicast = false")))) == 2
    (problem,) = problems_of(changed((leg, 'unicast = "yes"\n' + leg)))
    assert "segments.floor.unicast: 'yes' is neither true nor false" in problem
