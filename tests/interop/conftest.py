"""The hosts and the peer program, once for all tests; a scene for each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.peers import Layout, Pair, Scene, compile_peer
from tests.interop.yard import Yard, yard

SceneOf = Callable[..., Scene]


@pytest.fixture(scope="session")
def shared_yard() -> Iterator[Yard]:
    """All hosts."""
    with yard() as made:
        yield made


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The OpenPGM peer."""
    return compile_peer(tmp_path_factory.mktemp("openpgm"))


@pytest.fixture
def scene_of(shared_yard: Yard, program: Path) -> Iterator[SceneOf]:
    """Make scenes that end with the test. Status sockets need a short path."""
    folders: list[Path] = []
    scenes: list[Scene] = []

    def make(pair: Pair, layout: Layout | None = None, **options: Any) -> Scene:
        folders.append(Path(tempfile.mkdtemp(prefix="pgm-test-")))
        scenes.append(Scene(shared_yard, program, folders[-1], pair, layout or pair.layout, **options))
        return scenes[-1]

    shared_yard.send_trains(False)
    yield make
    for scene in scenes:
        scene.close()
    for folder in folders:
        shutil.rmtree(folder)
