"""`pgm tune --place`: the search by formulas, the proof by simulations, and the file that is written."""

from __future__ import annotations

import math
from pathlib import Path

import attrs
import pytest

from deploy.tune.command import shapes_of
from deploy.tune.place import SEARCH_DRAWS, Placement, PlaceResult, PlaceSearch, even_spread
from deploy.tune.score import Score, compared
from deploy.tune.trial import Candidate, RunMeasures, applied, free_address, has_room
from deploy.tune.tuned_file import placed_text, require_places
from pgm.errors import UsageError
from pgm.prediction.delays import delays_of
from pgm.prediction.predict import Conditions, Offer
from pgm.topology.load import loads
from pgm.topology.model import Host, Interface, NodeTable, Topology
from pgm.topology.node_plan import Role
from pgm.topology.plan import plan_all
from tests.cli.command import invoked
from tests.cli.test_json import documented
from tests.sim.support.files import floors

UNEVEN = floors(["0.2%", "3%", "0.2%", "0.2%"], [5] * 4, "0.1%", keeps=False).text
TREE = loads(UNEVEN)

SCORE = Score(Candidate(), RunMeasures(1.0, 1.0, 1.0, 1.0, 1.0, 0, 100), 1.0, 4)


def search(text: str = UNEVEN) -> PlaceSearch:
    topology = loads(text)
    conditions = Conditions(delays=delays_of(topology, {}, ()), offer=Offer(size=600), draws=SEARCH_DRAWS)
    return PlaceSearch(topology, conditions, shapes_of(topology))


def test_formulas_put_the_first_repairer_where_most_is_lost() -> None:
    ranked, method = search().ranked(1)
    assert (ranked[0], len(ranked), method) == (("floor-2",), 4, "exhaustively")


def test_greedy_search_with_exchanges_finds_the_exhaustive_best(monkeypatch: pytest.MonkeyPatch) -> None:
    best, _ = search().ranked(2)
    monkeypatch.setattr("deploy.tune.place.MOST_EXHAUSTIVE", 3)
    greedy, method = search().ranked(2)
    assert greedy[0] == best[0]
    assert method == "greedily, with exchanges"


def test_too_many_repairers_name_the_number_that_is_possible() -> None:
    with pytest.raises(UsageError) as error:
        search().ranked(5)
    assert "only 4 segments" in error.value.message
    assert error.value.remedy == "give --place 4 at most"


def placement(name: str, predicted: float, waits_ms: tuple[float, ...], *, is_even: bool = False) -> Placement:
    """Return a placement whose runs have these mean waits and a p99 of the same length."""
    runs = tuple(RunMeasures(wait, wait, wait, 1.0, 1.0, 0, 100) for wait in waits_ms)
    score = compared(Candidate(repairers_on=(name,)), runs, [SCORE.outcome] * len(runs))
    return Placement((name,), predicted, score, runs, is_even)


def test_choice_is_of_formulas_unless_another_is_clearly_better() -> None:
    first = placement("a", 0.5, (0.40, 0.45, 0.35, 0.40))
    lucky = placement("b", 0.9, (0.10, 0.80, 0.25, 0.40))
    better = placement("c", 0.9, (0.25, 0.30, 0.25, 0.25), is_even=True)
    assert PlaceResult(SCORE, (lucky, first), 2, "exhaustively").best == first
    assert PlaceResult(SCORE, (lucky, better, first), 3, "exhaustively").best == better


def test_rejected_placement_is_never_the_choice_of_simulations() -> None:
    first = placement("a", 0.5, (0.4, 0.4, 0.4, 0.4))
    losing = placement("b", 0.9, (0.1, 0.1, 0.1, 0.1))
    losing = attrs.evolve(losing, score=attrs.evolve(losing.score, value=math.inf))
    assert PlaceResult(SCORE, (losing, first), 2, "exhaustively").best == first


def test_even_spread_has_equal_distances() -> None:
    assert even_spread("abcdefgh", 2) == ("c", "g")
    assert even_spread("abc", 3) == ("a", "b", "c")
    assert even_spread("abcde", 1) == ("c",)


def test_file_with_repairers_is_the_tree_that_was_simulated() -> None:
    topology, places = loads(UNEVEN), ("floor-2", "floor-4")
    text = placed_text(UNEVEN, topology, places, dict.fromkeys(places, "a reason"))
    written, simulated = plan_all(loads(text)), plan_all(applied(topology, Candidate(repairers_on=places)))
    assert {name: attrs.evolve(plan, file="", digest="") for name, plan in written.items()} == {
        name: attrs.evolve(plan, file="", digest="") for name, plan in simulated.items()
    }
    assert text.count("# a reason") == 2
    assert "choose a host" in text


def test_comments_beside_replaced_parents_stay() -> None:
    lines = [
        f"parents = [  # near\n{line[11:-1]},  # old\n]  # all" if line.startswith("parents") else line
        for line in UNEVEN.splitlines()
    ]
    text = "\n".join(lines)
    placed = placed_text(text, loads(text), ("floor-2",), {"floor-2": "a reason"})
    [changed] = [line for line in placed.splitlines() if line.startswith('parents = ["floor-2-extra-repairer"')]
    assert changed.endswith("]  # near  # old  # all")
    assert placed.count("# old") == UNEVEN.count("parents")


def test_receivers_without_a_table_are_refused_before_the_search(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text("nodes = {}")
    with pytest.raises(UsageError) as error:
        require_places(file, loads(UNEVEN), ["floor-1"])
    assert "[nodes." in error.value.remedy


def hall(interface: str, *addresses: str | None) -> Topology:
    """Return a segment with a receiver for each address. A receiver with None has no known address."""
    receivers = {
        f"desk-{at}": NodeTable(
            role=Role.RECEIVER, segment="hall", address=None if address is None else Host(address), name=f"desk-{at}"
        )
        for at, address in enumerate(addresses)
    }
    segment = attrs.evolve(TREE.segments["floor-1"], name="hall", interface=Interface(interface))
    return attrs.evolve(TREE, segments={"hall": segment}, nodes=receivers)


@pytest.mark.parametrize(
    ("interface", "address", "free"),
    [
        ("10.0.0.0/29", "10.0.0.6", "10.0.0.5"),
        ("eth0", "10.0.3.9", "10.0.3.254"),
        ("10.0.3.9", None, "10.0.3.254"),
        ("eth0", "fd00::9", "fd00::ffff:ffff:ffff:fffe"),
    ],
)
def test_extra_repairer_has_the_highest_free_address(interface: str, address: str | None, free: str) -> None:
    topology = hall(interface, address)
    assert (free_address(topology, "hall"), has_room(topology, "hall")) == (free, True)


@pytest.mark.parametrize(
    ("interface", "address", "message"),
    [
        ("eth0", None, "segment hall: the file tells no network"),
        ("10.0.0.0/30", "10.0.0.1", "segment hall: nodes of the file have all addresses of 10.0.0.0/30"),
    ],
)
def test_segment_without_a_free_address_is_refused(
    tmp_path: Path, interface: str, address: str | None, message: str
) -> None:
    topology = hall(interface, address, address and "10.0.0.2")
    file = tmp_path / "tree.toml"
    file.write_text("[nodes.desk]")
    with pytest.raises(UsageError) as error:
        require_places(file, topology, ["hall"])
    assert error.value.message.startswith(message)
    assert "interface" in error.value.remedy
    assert not has_room(topology, "hall")


def test_command_places_a_repairer_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.tune.command.spark_session", lambda *_, **__: pytest.fail("Spark was started"))
    file, out = tmp_path / "tree.toml", tmp_path / "placed.toml"
    file.write_text(UNEVEN)
    words: list[str | Path] = ["--place", "1", "--runs", "100", "--messages", "150", "--size", "600", "--out", out]
    done = invoked("tune", file, *words, "--json")
    assert done.code == 0, done
    content = done.json
    documented("tune --place", content, optional=("timers",))
    documented("tune --place, each of placements[]", content["placements"][0])
    assert content["chosen"] == ["floor-2"]
    scores = {tuple(one["place"]): one["score"] for one in content["placements"]}
    [even] = [one for one in content["placements"] if one["is_even"]]
    assert scores["floor-2",] < even["score"]
    text = out.read_text()
    assert "[nodes.floor-2-extra-repairer]" in text
    assert text.startswith("# tree.toml with repairers where pgm tune placed them: floor-2")


def test_options_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(UNEVEN)
    timers = invoked("tune", file, "--timers", "--out", tmp_path / "placed.toml")
    assert (timers.code, "--timers is for --place" in timers.err) == (2, True)
    beside = invoked("tune", file, "--place", "1", "--beside", file, "--out", tmp_path / "placed.toml")
    assert (beside.code, "leave out --beside or --place" in beside.err) == (2, True)
