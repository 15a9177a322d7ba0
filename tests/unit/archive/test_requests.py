"""Tickets are read as written, and other octets are refused with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.archive.errors import BadRequest, SchemaTooNew
from pgm.archive.requests import RangeRequest, SessionExtent
from pgm.archive.store.schema import COLUMN_NAMES, SCHEMA, STORED_SCHEMA, VERSION_KEY, check_version

_SQNS = st.none() | st.integers(0, 2**63 - 1)
_NAMES = st.none() | st.lists(st.sampled_from(COLUMN_NAMES), unique=True).map(tuple)


@given(
    st.builds(
        RangeRequest,
        tsi=st.text(),
        epoch_us=_SQNS,
        first=_SQNS,
        end=_SQNS,
        columns=_NAMES,
        subjects=st.none() | st.lists(st.text()).map(tuple),
        tail=st.booleans(),
        parts=st.integers(1, 100),
    )
)
def test_a_ticket_survives_its_octets(request_: RangeRequest) -> None:
    assert RangeRequest.from_bytes(request_.to_bytes()) == request_


@pytest.mark.parametrize(
    ("octets", "part"),
    [
        (b"", "needs a tsi"),
        (b"{", "is no JSON"),
        (b"[]", "is no JSON object"),
        (b'{"tsi": 5}', "tsi = 5 is not text"),
        (b'{"tsi": "a", "first": -1}', "first = -1 is not a whole number"),
        (b'{"tsi": "a", "first": true}', "first = True is not a whole number"),
        (b'{"tsi": "a", "columns": "sqn"}', "is not a list of texts"),
        (b'{"tsi": "a", "tail": null}', "tail = None is not true or false"),
        (b'{"tsi": "a", "lst": 1}', "has no key 'lst'"),
    ],
)
def test_requests_bad_ticket_is_refused(octets: bytes, part: str) -> None:
    with pytest.raises(BadRequest, match=part):
        RangeRequest.from_bytes(octets)


def test_a_holding_survives_json_and_keys_of_a_newer_version() -> None:
    holding = SessionExtent(
        "1.2.3.4.5.6.7", 5, "quotes", "exchange", "repairer", "core", 10, 20, 10, 1000, 1, 2, closed=False
    )
    assert SessionExtent.from_json(holding.as_json() | {"colour": "red"}) == holding


def test_a_newer_schema_is_refused() -> None:
    check_version(SCHEMA, "here")
    check_version(STORED_SCHEMA, "here")
    with pytest.raises(SchemaTooNew, match="segment-1 has rows of schema version 7"):
        check_version(SCHEMA.with_metadata({VERSION_KEY: b"7"}), "segment-1")
    with pytest.raises(SchemaTooNew, match="no rows of an archive"):
        check_version(SCHEMA.remove_metadata(), "segment-1")
