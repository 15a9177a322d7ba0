"""Fixtures: the hosts and the peer program, shared by all tests, and a scene for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import write_private_file
from pgm.trust.private_keys import PrivateFile
from tests.folders import short_folder
from tests.interop.support.peers import Layout, Pair, Scene, compile_peer
from tests.interop.support.yard import Yard, yard
from tests.unit.trust.keys import private_keys

SIGNER = private_keys(1)  # of the source of a signed stream
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


@pytest.fixture
def sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    """Return a function that gives the source of a scene the private keys of `SIGNER`."""
    monkeypatch.setenv("PGM_KEY_DIR", str(tmp_path / "keys"))

    def write(scene: Scene) -> None:
        write_private_file(place_of(scene.name, "source"), PrivateFile(scene.name, "source", SIGNER))

    return write
