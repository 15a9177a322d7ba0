"""A train of NAKs has the effects of its packets one by one: at the source, and at a receiver that hears it confirmed."""

from __future__ import annotations

import numpy as np
import pytest

from pgm.core.effects import Send
from pgm.units import SECOND
from pgm.wire.control_packets import encode
from pgm.wire.formats import PacketType
from pgm.wire.naks import LIST_SQNS, Naks
from pgm.wire.train import Train
from tests.unit.core.makers import BY_UNICAST, MS, PEER, sent_control, sent_sqns
from tests.unit.core.source.sources import START, all_effects, nak, run, with_data

ASKED_AT = START + 2 * SECOND
MANY = 5 * LIST_SQNS


def packets_for(sqns):
    return [encode(nak(*sqns[at : at + LIST_SQNS])) for at in range(0, len(sqns), LIST_SQNS)]


def asked(packets, *, together, **changes):
    """A source that gets NAKs as one train or one by one; its answers."""
    core = with_data(MANY + 20, **changes)
    trains = [Train.of(b"".join(packets), len(packets[0]))] if together else [Train.of(one) for one in packets]
    effects = [effect for train in trains for effect in core.receive(train, BY_UNICAST, PEER, ASKED_AT)]
    effects += all_effects(run(core, ASKED_AT + 100 * MS))
    return core, effects


@pytest.mark.rfc("SRC-40", "SRC-44")
@pytest.mark.parametrize("step", [1, -1, 3])
def test_a_train_is_answered_as_its_packets_are(step):
    sqns = [sqn * 3 % MANY for sqn in range(MANY)] if step == 3 else list(range(MANY))[::step]
    packets = packets_for([*dict.fromkeys(sqns)][: 5 * LIST_SQNS // 3 * 3])
    packets = [one for one in packets if len(one) == len(packets[0])]
    core, effects = asked(packets, together=True)
    other, expected = asked(packets, together=False)
    assert sent_control(effects, PacketType.NCF) == sent_control(expected, PacketType.NCF)
    assert sorted(sent_sqns(effects, PacketType.RDATA)) == sorted(sent_sqns(expected, PacketType.RDATA))
    assert core.counters.snapshot() == other.counters.snapshot()
    ncfs = [one for one in effects if isinstance(one, Send) and bytes(one.octets[4:5])[0] == PacketType.NCF]
    assert len(ncfs) == 1


@pytest.mark.rfc("SRC-41")
def test_ncfs_of_a_train_are_damped_each_by_itself():
    packets = packets_for(list(range(3 * LIST_SQNS)))
    core = with_data(MANY)
    core.receive(Train.of(packets[1]), BY_UNICAST, PEER, ASKED_AT)
    effects = core.receive(Train.of(b"".join(packets), len(packets[0])), BY_UNICAST, PEER, ASKED_AT + MS)
    assert [one.sqn for one in sent_control(effects, PacketType.NCF)] == [0, 2 * LIST_SQNS]
    assert core.counters.ncf_packets_damped == 1


@pytest.mark.parametrize("most", [2, 5])
def test_a_train_counts_as_many_naks_as_it_has(most):
    core, _ = asked(packets_for(list(range(MANY))), together=True, child_nak_rte=most, brake_burst_ivl=SECOND)
    [item] = Train.of(
        b"".join(packets_for(list(range(MANY)))), len(packets_for(range(LIST_SQNS))[0])
    ).parse_runs_untrusted()[0]
    assert isinstance(item, Naks)
    core.receive(
        Train.of(np.ascontiguousarray(item.rows).reshape(-1), item.rows.shape[1]),
        BY_UNICAST,
        PEER,
        ASKED_AT + SECOND // 5,
    )
    assert core.counters.nak_packets_in == 5
    assert core.counters.nak_packets_braked == 5
