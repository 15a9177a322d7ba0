"""Findings of `check`: none in the correct tree, and in every broken tree its fault.

A finding has file, line, values and remedy.
"""

from __future__ import annotations

import attrs
import pytest

from pgm.errors import TopologyError
from pgm.topology.check import RULES, check, check_file, load_checked
from pgm.topology.locate import KeyLines
from pgm.units import MILLISECOND
from tests.unit.topology.cases import CASES, Case
from tests.unit.topology.trees import FILE, GOOD, changed, line_of, report, topology


def test_good_tree_passes_without_a_word():
    found = check(topology())
    assert found.is_good
    assert not found.errors
    assert not found.warnings


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.says[0][:40]}")
def test_broken_tree_is_found(case: Case):
    text = changed(*case.changes)
    found = report(text)
    rule = next(rule for rule in RULES if rule.name == case.rule)
    problems = [one for one in (found.warnings if rule.is_warning else found.errors) if one.rule == case.rule]
    line = line_of(text, case.mark)
    matching = [one for one in problems if one.line == line and all(word in one.message for word in case.says)]
    assert matching, "\n".join(map(str, found.errors + found.warnings))
    assert case.remedy in matching[0].remedy
    assert str(matching[0]) == f"{FILE}:{line}: {matching[0].message} ({matching[0].remedy})"


def test_every_rule_has_a_case():
    assert {case.rule for case in CASES} == {rule.name for rule in RULES}


def test_rules_have_unique_names_and_sentences():
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.sentence.endswith(".") for rule in RULES)


def test_one_mistake_at_the_top_is_one_finding():
    text = changed(('name = "good"', 'name = "good"\nparameters = { stall_ivl = "3s", peer_expiry = "3s" }'))
    messages = [one.message for one in report(text).errors]
    assert len(messages) == 2


def test_warnings_do_not_keep_a_tree_from_running(tmp_path):
    path = tmp_path / FILE
    path.write_text(changed(('bytes = "4GiB"', 'bytes = "1GiB"')))
    assert check_file(path).warnings
    assert load_checked(path).name == "good"


def test_former_name_is_read_as_present_name_with_a_warning(tmp_path):
    path = tmp_path / FILE
    text = GOOD + '[nodes."desk-*".parameters]\nrx_look_ivl = "1ms"\n'
    path.write_text(text)
    with pytest.warns(FutureWarning, match="rx_look_ivl is the former name of rx_poll_ivl"):
        topology = load_checked(path)
    assert topology.nodes["desk-*"].parameters == {"rx_poll_ivl": MILLISECOND}
    setting = ("nodes", "desk-*", "parameters", "rx_poll_ivl")
    assert topology.lines.of(setting) == line_of(text, "rx_look_ivl")


@pytest.mark.parametrize("first", ["rx_look_ivl", "rx_poll_ivl"])
def test_former_and_present_name_together_are_refused(first):
    second = {"rx_look_ivl": "rx_poll_ivl", "rx_poll_ivl": "rx_look_ivl"}[first]
    found = report(changed(("count = 4", f'count = 4\nparameters = {{ {first} = "1ms", {second} = "2ms" }}')))
    assert "rx_look_ivl is the former name of rx_poll_ivl, which is set too" in found.errors[0].message
    assert found.errors[0].remedy == "remove rx_look_ivl"


def test_errors_of_form_and_of_meaning_come_together(tmp_path):
    path = tmp_path / FILE
    text = changed(
        ("count = 4", "cuont = 4"), ('parents = ["exchange"]', 'parents = ["exchnge"]'), ('"10s"', '"10 sec"')
    )
    path.write_text(text)
    with pytest.raises(TopologyError) as caught:
        load_checked(path)
    rules = [(one.line, one.rule) for one in check_file(path).errors]
    assert rules == [
        (line_of(text, "10 sec"), "format"),
        (line_of(text, "exchnge"), "unknown-name"),
        (line_of(text, "cuont"), "format"),
    ]
    assert caught.value.problems == tuple(str(one) for one in check_file(path).errors)
    assert all(one.startswith(f"{path}:") for one in caught.value.problems)


def test_file_that_is_no_toml_is_a_report_too(tmp_path):
    path = tmp_path / FILE
    path.write_text("version = ")
    report = check_file(path)
    assert not report.is_good
    assert [(one.rule, one.line) for one in report.errors] == [("syntax", 1)]
    with pytest.raises(TopologyError):
        load_checked(path)


def test_rules_unreadable_values_are_not_judged_again():
    text = changed(('upstream = { segment = "core", address = "10.0.0.12" }', "upstream = 5"))
    assert [one.rule for one in report(text).errors if "'relay' has no upstream" in one.message] == []
    assert any("5 is not a table" in one.message for one in report(text).errors)


def test_a_tree_made_in_code_is_checked_too():
    bare = attrs.evolve(topology(('parents = ["exchange"]', 'parents = ["nobody"]')), path="made", lines=KeyLines())
    assert str(check(bare).errors[0]).startswith("made:1: 'core-repairer' names the node 'nobody'")


def test_repairers_behind_aggregators_count_as_servers_of_receivers():
    slow = ('address = "10.0.1.2"', 'address = "10.0.1.2"\nparameters = { rdata_ignore_ivl = "500ms" }')
    only_relay = ('"relay", "standby", "floor-repairer"', '"relay"')
    messages = [one.message for one in report(changed(slow, only_relay)).errors]
    assert messages == ["rdata_ignore_ivl = 500ms (floor-repairer) is not below nak_rdata_ivl = 200ms (desk-*)"]


def test_rules_streams_are_compared_by_their_own_timers():
    text = changed(
        ("[segments.core]", '[streams.slow]\ndata_port = 7501\nparameters = { ihb_max = "9s" }\n[segments.core]'),
        ('streams = ["quotes"]\n[nodes.core', 'streams = ["quotes", "slow"]\n[nodes.core'),
    )
    assert any("2 x ihb_max = 18s (exchange) is above stall_ivl = 4s" in one.message for one in report(text).errors)


def test_good_tree_is_the_good_text():
    assert not report(GOOD).errors


def test_rules_missing_stream_is_reported_at_its_origin():
    mute = ('streams = ["quotes"]\n[nodes.core', "[nodes.core")
    found = [one.message for one in report(changed(mute)).errors if one.rule == "fed"]
    assert found == ["no stream arrives on core, where core-repairer, relay, standby listen"]


def test_remedies_name_addresses_of_the_segment():
    loopback = ('interface = "10.0.1.0/24"', 'interface = "127.0.7.0/24"')
    found = report(changed(loopback, ('addresses = "10.0.1.10-10.0.1.19"\n', ""))).errors
    assert any('addresses = "127.0.7.10-127.0.7.13"' in one.remedy for one in found)


@pytest.mark.parametrize(
    ("right", "wrong", "mark"),
    [
        ('role = "aggregator"', 'role = "agregator"', "agregator"),
        ('role = "source"', 'role = "sauce"', "sauce"),
        ('segment = "floor"', "segment = 2", "segment = 2"),
    ],
)
def test_rules_consequences_of_unreadable_values_are_silent(right, wrong, mark):
    text = changed((right, wrong))
    found = report(text)
    assert [(one.line, one.rule) for one in found.errors] == [(line_of(text, mark), "format")]
    assert not found.warnings


def test_a_cache_is_not_held_against_a_rate_that_could_not_be_read():
    text = changed(('bytes = "4GiB"', 'bytes = "1GiB"'))
    assert report(text).warnings
    assert not report(changed(('rate = "400Mbit/s"', 'rate = "400 fast"'), text=text)).warnings


def test_a_file_that_is_not_there_has_no_line(tmp_path):
    found = check_file(tmp_path / "none.toml")
    assert [str(one) for one in found.errors] == [
        f"{tmp_path / 'none.toml'}: cannot read it: No such file or directory (give the path of a topology file)"
    ]


TWIN = """
[nodes.desk]
role = "receiver"
segment = "core"
address = "10.0.0.10"
parents = ["exchange"]
[nodes.twin]
role = "source"
segment = "core"
address = "10.0.0.10"
streams = ["quotes"]
[nodes."desk-*"]"""


def test_check_lets_sources_and_receivers_share_an_address():
    assert not report(changed(('[nodes."desk-*"]', TWIN))).errors


@pytest.mark.parametrize("flow", ["acked", "pgmcc"])
def test_check_keeps_receivers_that_report_apart(flow):
    changes = (
        ("[nodes.twin]", '[nodes.other]\nrole = "receiver"\nsegment = "core"\naddress = "10.0.0.10"\n[nodes.twin]'),
    )
    twins = changed(*changes, text=TWIN)
    assert not report(changed(('[nodes."desk-*"]', twins))).errors
    found = report(changed(('[nodes."desk-*"]', twins), ('window = "10s"', f'window = "10s"\nflow = "{flow}"'))).errors
    messages = [one.message for one in found if one.rule == "socket-clash"]
    assert messages == ["'desk' and 'other' both use 10.0.0.10 port 3056"]
