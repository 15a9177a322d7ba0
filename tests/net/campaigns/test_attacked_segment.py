"""Small share of the campaign: forgeries at the sockets of a signed tree that runs in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import write_private_file
from pgm.topology.load import loads
from pgm.trust.private_keys import PrivateFile
from tests.attacks.heard import Place as AttackedPlace
from tests.attacks.program import Gun
from tests.net.campaigns.attacked_segment import text_of
from tests.net.support.elements import running
from tests.net.support.listening import PATIENCE_S
from tests.net.support.places import Place
from tests.unit.trust.keys import private_keys

MESSAGES, VOLLEYS, EACH = 60, 20, 30


@pytest.mark.parametrize("hosts", [(66,), (66, 1, 3, 4, 100)], ids=["own", "forged"])
async def test_no_forgery_on_a_segment_is_delivered(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: tuple[int, ...]
) -> None:
    """Everything true is delivered, but forged addresses may delay it."""
    monkeypatch.setenv("PGM_KEY_DIR", str(tmp_path / "keys"))
    topology = loads(text_of(place, tmp_path, "100Mbit/s"))
    write_private_file(place_of(topology.name, "source"), PrivateFile(topology.name, "source", private_keys(1)))
    members = tuple(place.address(host) for host in (3, 4, 100))
    attacked = AttackedPlace(place.group(1), place.address(3), members, 7500)
    taken: list[bytes] = []
    patience_s = PATIENCE_S if len(hosts) == 1 else 0.2
    with trio.fail_after(PATIENCE_S):
        async with running(topology, "relay", "repairer", "desk-1", "source") as tree:
            gun = Gun.at(attacked, place.port, [place.address(host) for host in hosts], 1)
            source, receiver = tree.sources["source"], tree.receivers["desk-1"]
            sent = [b"true %d" % number for number in range(MESSAGES)]
            for volley in range(VOLLEYS):
                await source.send_batch(sent[volley * 3 : volley * 3 + 3])
                await source.flush()
                await trio.sleep(0.005)
                gun.listen()
                gun.forge(EACH)
                gun.fire(EACH)
            gun.close()
            while len(taken) < MESSAGES and (item := await receiver.next_batch(patience_s)) is not None:
                taken += [bytes(payload) for payload in item] if hasattr(item, "payloads") else []
    assert sum(gun.sent.values()) > VOLLEYS * EACH / 2
    assert [message for message in sent if message in set(taken)] == taken
    assert len(taken) == MESSAGES or len(hosts) > 1
