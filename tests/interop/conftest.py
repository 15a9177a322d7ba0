"""Fixtures: the hosts and the peer program, shared by all tests, and a scene for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.folders import short_folder
from tests.interop.support.peers import Layout, Pair, Scene, compile_peer
from tests.interop.support.yard import Yard, yard

SceneOf = Callable[..., Scene]


@pytest.fixture(scope="session")
def shared_yard() -> Iterator[Yard]:
    """Build all hosts."""
    with yard() as made:
        yield made


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the OpenPGM peer."""
    return compile_peer(tmp_path_factory.mktemp("openpgm"))


@pytest.fixture
def scene_of(shared_yard: Yard, program: Path) -> Iterator[SceneOf]:
    """Return a maker of scenes that end with the test; status sockets need a short path."""
    with ExitStack() as stack:

        def make(pair: Pair, layout: Layout | None = None, **options: Any) -> Scene:
            folder = stack.enter_context(short_folder())
            scene = Scene(shared_yard, program, folder, pair, layout or pair.layout, **options)
            stack.callback(scene.close)
            return scene

        shared_yard.send_trains(False)
        yield make
