"""Names of sources and receivers: by the topology, by the address, and behind relays."""

from __future__ import annotations

import hashlib
import socket
from typing import Any

import pytest
import trio

import pgm
import pgm.blocking
from pgm.topology.load import loads
from tests.net.support.elements import running
from tests.net.support.listening import PATIENCE_S, taking
from tests.net.support.places import Place, below_a_relay, one_segment

_HOST_GSI = ".".join(
    str(octet) for octet in hashlib.md5(socket.gethostname().encode(), usedforsecurity=False).digest()[-6:]
)


@pytest.mark.parametrize("role", ["aggregator", "repairer"])
@pytest.mark.parametrize("framing", ["plain", "batch", "zeromq"])
async def test_items_behind_a_relay_name_their_sources(place: Place, role: str, framing: str) -> None:
    """Both sources send one stream, so only the TSI tells them apart; the peer is the relay."""
    text = below_a_relay(place, role).replace("data_port = 7500", f'data_port = 7500\nframing = "{framing}"')
    other = f'role = "source"\nsegment = "core"\naddress = "{place.address(5)}"\nstreams = ["s"]'
    topology = loads(f"{text}\n[nodes.other]\n{other}\n")
    sources = dict.fromkeys(("source", "other"), b"")
    opened: dict[str, str] = {}
    closed: list[str] = []
    async with running(topology, "desk-1", "relay") as tree:
        async with running(topology, *sources) as above:
            for name, source in above.sources.items():
                await source.send(name.encode())
            with trio.fail_after(PATIENCE_S):
                async for item in tree.receivers["desk-1"]:
                    if isinstance(item, pgm.Opened):
                        opened[item.source] = item.peer
                    elif isinstance(item, pgm.Message):
                        sources[item.source] = item.payload
                        assert str(item.tsi) == str(above.sources[item.source].tsi)
                    if all(sources.values()):
                        break
            rows = {row.tsi: row.source for row in tree.core("relay").status(tree.drivers["relay"].now_ns())}
        with trio.fail_after(PATIENCE_S):
            async for item in tree.receivers["desk-1"]:
                closed.append(item.source)
                if len(closed) == 2:
                    break
    assert sources == {"source": b"source", "other": b"other"}
    assert opened == dict.fromkeys(sources, place.address(3))
    assert set(closed) == set(sources)
    assert rows == {str(source.tsi): name for name, source in above.sources.items()}


async def test_source_of_an_address_is_named_by_its_host(place: Place) -> None:
    """A node of the file that is the only source of its stream is named by the file."""
    topology = loads(one_segment(place))
    async with (
        pgm.open_receiver(place.url()) as by_url,
        pgm.open_receiver(topology, node="desk-1") as by_file,
        taking(by_url, by_file) as (one, two),
        pgm.open_source(place.url(address=place.address(1)), fin_quiet_ivl="200ms") as source,
    ):
        await source.send(b"x")
    assert [item.source for item in one.events] == [_HOST_GSI] * 2
    assert [item.source for item in two.events] == ["source"] * 2
    assert str(source.tsi).startswith(f"{_HOST_GSI}.")
    assert str(source.tsi) == repr(one.opened[0].tsi)


@pytest.mark.parametrize("is_legacy", [False, True])
async def test_tsi_of_a_legacy_stream_has_the_id_of_its_host(place: Place, is_legacy: bool) -> None:
    topology = loads(one_segment(place, parameters="private_options = false" if is_legacy else ""))
    async with pgm.open_source(topology, node="source") as source:
        assert str(source.tsi).startswith(_HOST_GSI) == is_legacy
        assert source.sessions[0].source == "source"


@pytest.mark.parametrize("busy_poll", [False, True])
def test_receivers_of_an_address_get_messages_by_name(place: Place, busy_poll: bool) -> None:
    options: dict[str, Any] = {"busy_poll": True} if busy_poll else {}
    url = place.url(framing="batch")
    with (
        pgm.blocking.open_receiver(url, name="desk-7", **options) as seven,
        pgm.blocking.open_receiver(f"{url}&name=desk-8", **options) as eight,
        pgm.blocking.open_source(place.url(framing="batch", address=place.address(1)), fin_quiet_ivl=0) as source,
    ):
        for name in ("desk-7", "desk-8", "receiver", None):
            source.send(f"{name}".encode(), to=name)
        source.flush()
        taken = {
            receiver: [
                item.payload for item in (receiver.recv(PATIENCE_S) for _ in range(3)) if type(item) is pgm.Message
            ]
            for receiver in (seven, eight)
        }
    assert taken == {seven: [b"desk-7", b"None"], eight: [b"desk-8", b"None"]}


@pytest.mark.parametrize(
    ("has_file", "options", "says"),
    [
        (False, {"node": "desk-7"}, "node= is for a topology.*name='desk-7'"),
        (True, {"node": "desk-1", "name": "desk-7"}, "name= is for an address.*node="),
        (False, {"name": "desk 7"}, "'desk 7' is no name"),
    ],
)
def test_opener_with_the_wrong_name_says_which_to_use(
    place: Place, has_file: bool, options: dict[str, Any], says: str
) -> None:
    target = loads(one_segment(place)) if has_file else place.url()
    for busy_poll in ({}, {"busy_poll": True}):
        for opener in (pgm.blocking.open_receiver, pgm.blocking.open_node):
            with (
                pytest.raises(pgm.UsageError, match=f"(?s){says}"),
                opener(target, **options, **busy_poll),
            ):
                pass
