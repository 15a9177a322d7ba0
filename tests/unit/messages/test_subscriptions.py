"""Subscriptions filter by prefix as SUB does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import UsageError
from pgm.messages.subscriptions import Subscriptions

prefixes = st.lists(st.binary(max_size=3), max_size=14)
topics = st.lists(st.binary(max_size=4), max_size=8)


@given(prefixes, topics)
def test_a_message_is_wanted_if_its_first_part_begins_with_any(subscribed: list[bytes], first: list[bytes]):
    found = Subscriptions(subscribed)
    messages = [(topic, b"body") for topic in first]
    wanted = [place for place, topic in enumerate(first) if any(topic.startswith(one) for one in subscribed)]
    chosen = found.select(messages)
    assert (list(range(len(messages))) if chosen is None else chosen) == wanted
    assert [found.wants(parts) for parts in messages] == [place in wanted for place in range(len(messages))]


@given(prefixes, prefixes, topics)
def test_subscriptions_unsubscribe_restores_the_earlier_state(kept: list[bytes], gone: list[bytes], first: list[bytes]):
    found = Subscriptions(())
    for prefix in [*gone, *kept]:
        found.add(prefix)
    for prefix in gone:
        found.remove(prefix)
    assert sorted(found.prefixes) == sorted(set(kept))
    assert [found.wants((topic,)) for topic in first] == [Subscriptions(kept).wants((topic,)) for topic in first]


def test_everything_by_default_and_nothing_without_any():
    assert Subscriptions().wants((b"",))
    assert not Subscriptions(()).wants((b"",))
    assert Subscriptions(()).select([(b"a",)]) == []


def test_only_the_first_part_counts():
    assert not Subscriptions([b"body"]).wants((b"topic", b"body"))


def test_misuse_is_refused():
    found = Subscriptions([b"EUR"])
    with pytest.raises(UsageError, match=r"b'USD' is not subscribed"):
        found.remove(b"USD")
    with pytest.raises(UsageError, match="no prefix"):
        found.add("EUR")  # type: ignore[arg-type]
    assert found.prefixes == (b"EUR",)
