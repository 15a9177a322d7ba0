"""JSON and pictures of explanations: the schema holds, and the documents are well-formed."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import jsonschema
import pytest

from pgm.flight.contents import RingContents, from_json_untrusted, to_json
from pgm.flight.excerpt import about_packets, worst_of
from pgm.flight.record import KINDS, FlightKind
from pgm.flight.verdicts.explanation import explain
from pgm.flight.verdicts.json_schema import SCHEMA
from pgm.flight.verdicts.ladder import ladder_svg
from pgm.flight.verdicts.qlog import EVENT_NAMES, explanation_as_json, worst_as_json
from pgm.flight.verdicts.view import FlightView
from pgm.flight.verdicts.worst import explained, worst_troubles
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from tests.sim.flight.planted import Planter
from tests.sim.flight.test_places import flown, run, tree

LOST = 100


@pytest.fixture(scope="module")
def rings() -> list[RingContents]:
    world, recorders = flown(tree(), messages=300)
    world.run_until(SECOND // 2)
    planter = Planter(world)
    planter.on("desk-1", "floor", "in").add(PacketType.ODATA, LOST)
    planter.on("desk-1", "floor", "out").add(PacketType.NAK, LOST)
    planter.on("relay-a", "core", "in").add(PacketType.ODATA, 200)
    run(world, until_s=3)
    return recorders.contents()


@pytest.mark.parametrize("sqn", [LOST, 200, 50])
def test_json_of_an_explanation_follows_its_schema(rings: list[RingContents], sqn: int) -> None:
    one = explain(FlightView.of(rings), "stream", sqn)
    value = json.loads(json.dumps(explanation_as_json(one)))
    jsonschema.validate(value, SCHEMA, jsonschema.Draft202012Validator)
    assert (value["target"] is None) == (sqn == 50)


def test_ladder_of_an_explanation_is_one_drawing_without_scripts(rings: list[RingContents]) -> None:
    text = ladder_svg(explain(FlightView.of(rings), "stream", LOST, "desk-1"))
    drawing = ElementTree.fromstring(text)
    texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"source", "relay-a", "keeper", "desk-1", "NAK", "NCF", "RDATA", "gap found", "repaired", "\u2715"} <= set(
        texts
    )
    assert "<script" not in text


def test_excerpts_of_all_nodes_explain_as_whole_rings_do(rings: list[RingContents]) -> None:
    for sqn in (LOST, 200, 50):
        parts = [
            from_json_untrusted(json.loads(json.dumps(to_json(about_packets(ring, [("stream", sqn)])))))
            for ring in rings
        ]
        whole, part = (explanation_as_json(explain(FlightView.of(one), "stream", sqn)) for one in (rings, parts))
        assert part == whole
        assert sum(len(ring.records) for ring in parts) < sum(len(ring.records) for ring in rings)


def test_worst_troubles_are_those_of_whole_rings(rings: list[RingContents]) -> None:
    view = FlightView.of(rings)
    whole = worst_troubles(view, 3)
    assert whole == worst_troubles(FlightView.of(worst_of(ring, 3) for ring in rings), 3)
    assert LOST in [trouble.first for trouble in whole]
    value = worst_as_json(whole, [explained(view, trouble) for trouble in whole])
    assert [row["took_ms"] for row in value["troubles"]] == sorted(
        [row["took_ms"] for row in value["troubles"]], reverse=True
    )


def test_every_kind_of_record_has_a_name_in_json() -> None:
    assert set(EVENT_NAMES) == set(KINDS) == set(FlightKind)
