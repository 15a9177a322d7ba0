"""A network of its own for every test."""

import pytest

from tests.net.support.places import Place


@pytest.fixture
def place() -> Place:
    return Place.new()
