"""`pgm tune --place`: the search by formulas, the proof by simulations, and the file that is written."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from deploy.tune.command import shapes_of
from deploy.tune.place import SEARCH_DRAWS, Placement, PlaceResult, PlaceSearch, even_spread
from deploy.tune.score import Score
from deploy.tune.trial import Candidate, RunMeasures, applied
from deploy.tune.tuned_file import placed_text, require_receivers
from pgm.errors import UsageError
from pgm.prediction.delays import delays_of
from pgm.prediction.predict import Conditions, Offer
from pgm.topology.load import loads
from pgm.topology.plan import plan_all
from tests.cli.command import invoked
from tests.cli.test_json import documented
from tests.sim.support.files import floors

UNEVEN = floors(["0.2%", "3%", "0.2%", "0.2%"], [5] * 4, "0.1%", keeps=False).text

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
    assert len(greedy) < len(best) + 1


def test_too_many_repairers_name_the_number_that_is_possible() -> None:
    with pytest.raises(UsageError) as error:
        search().ranked(5)
    assert "only 4 segments" in error.value.message
    assert error.value.remedy == "give --place 4 at most"


def test_choice_is_of_formulas_unless_another_is_clearly_better() -> None:
    first = Placement(("a",), 0.5, SCORE, (-0.5, -0.4, -0.6, -0.5))
    lucky = Placement(("b",), 0.9, SCORE, (-1.5, 0.2, -0.9, -0.3))
    better = Placement(("c",), 0.9, SCORE, (-0.8, -0.7, -0.8, -0.8), is_even=True)
    assert PlaceResult(SCORE, (lucky, first), 2, "exhaustively").best == first
    assert PlaceResult(SCORE, (lucky, better, first), 3, "exhaustively").best == better


def test_even_spread_has_equal_distances() -> None:
    assert even_spread("abcdefgh", 2) == ("c", "g")
    assert even_spread("abc", 3) == ("a", "b", "c")
    assert even_spread("abcde", 1) == ("c",)


def test_file_with_repairers_is_the_tree_that_was_simulated() -> None:
    topology, places = loads(UNEVEN), ("floor-2", "floor-4")
    text = placed_text(UNEVEN, topology, places, dict.fromkeys(places, "a reason"))
    written, simulated = plan_all(loads(text)), plan_all(applied(topology, Candidate(repairers_on=places)))
    plain = {"file": "", "digest": ""}
    assert {name: attrs.evolve(plan, **plain) for name, plan in written.items()} == {
        name: attrs.evolve(plan, **plain) for name, plan in simulated.items()
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
        require_receivers(file, loads(UNEVEN), ["floor-1"])
    assert "[nodes." in error.value.remedy


def test_command_places_a_repairer_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.tune.command.spark_session", lambda *_, **__: pytest.fail("Spark was started"))
    file, out = tmp_path / "tree.toml", tmp_path / "placed.toml"
    file.write_text(UNEVEN)
    words = ["--place", "1", "--runs", "100", "--messages", "150", "--size", "600", "--out", out]
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
    refused = invoked("tune", file, "--timers")
    assert (refused.code, "--timers is for --place" in refused.err) == (2, True)
