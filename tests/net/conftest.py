"""A network of its own for every test."""

import pytest

from tests.net.places import Place


@pytest.fixture
def place() -> Place:
    return Place.new()
