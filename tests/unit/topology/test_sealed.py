"""Readers of sealed streams in the plans of nodes."""

from __future__ import annotations

from pgm.archive.recording.node_recording import names_of
from pgm.topology.check import check
from pgm.topology.describe import topology_lines
from pgm.topology.load import loads
from pgm.topology.node_plan import Protection, StreamPlan
from pgm.topology.plan import plan_node
from tests.unit.topology.trees import GOOD
from tests.unit.trust.keys import private_keys

KEYS = {name: private_keys(number).public for number, name in enumerate(("exchange", "desk-1", "desk-2", "desk-3"), 1)}


def text_of(*, more: str = "", revoked: str = "", without: tuple[str, ...] = ()) -> str:
    lines = [f'keys.{name} = ["{keys.line}"]' for name, keys in KEYS.items() if name not in without]
    text = GOOD.replace('name = "good"\n', 'name = "good"\n' + "\n".join(lines) + "\n" + revoked).replace(
        "count = 4", "count = 3"
    )
    return text.replace("data_port = 7500", f"data_port = 7500\nsigned = true\nsealed = true\n{more}")


def stream_of(text: str, node: str = "exchange") -> StreamPlan:
    assert check(loads(text)).is_good
    [stream] = plan_node(loads(text), node).streams
    return stream


def test_readers_are_all_receivers_with_keys() -> None:
    wanted = tuple(KEYS[name] for name in ("desk-1", "desk-2", "desk-3"))
    assert stream_of(text_of()).readers == wanted
    assert stream_of(text_of(), "desk-7").readers == wanted


def test_listed_readers_alone_get_the_secret() -> None:
    assert stream_of(text_of(more='readers = ["desk-2", "exchange"]')).readers == (KEYS["exchange"], KEYS["desk-2"])
    assert stream_of(text_of(more='readers = ["desk-*"]')).readers == tuple(KEYS.values())[1:]


def test_revoked_receiver_is_left_out_and_the_file_stays_valid() -> None:
    revoked = f'revoked.{KEYS["desk-2"].id} = "2026-11-26 desk-2: stolen"\n'
    assert stream_of(text_of(revoked=revoked, without=("desk-2",))).readers == (KEYS["desk-1"], KEYS["desk-3"])


def test_recorder_takes_ciphertext_for_no_batches() -> None:
    topology = loads(text_of(more='framing = "batch"'))
    assert names_of(plan_node(topology, "desk-1")).batched == {7500}
    assert names_of(plan_node(topology, "desk-7")).batched == frozenset()
    assert names_of(plan_node(topology, "floor-repairer")).batched == frozenset()


def test_clear_stream_has_no_readers() -> None:
    assert stream_of(text_of().replace("sealed = true", "")).readers is None


def test_all_descriptions_tell_the_protection_in_the_same_words() -> None:
    text = text_of()
    told = "signed and sealed for " + ", ".join(stream_of(text).protection.readers or ())
    assert stream_of(text).protection.text == told
    assert plan_node(loads(text), "exchange").protection_text == f"; stream quotes: {told}"
    assert f", {told}" in topology_lines(loads(text))[1]
    signed = text.replace("sealed = true", "")
    assert stream_of(signed).protection.text == "signed"
    unordered = signed.replace("signed = true", 'signed = true\norder = "unordered"')
    assert stream_of(unordered).protection.text == "signed"
    clear = signed.replace("signed = true", "")
    assert (stream_of(clear).protection.text, plan_node(loads(clear), "exchange").protection_text) == ("clear", "")
    assert Protection("", (), True).text == "clear and sealed for no node, authenticated control"
