"""Sources and receivers: identity, SPM requests, and safety against false packets (RFC 3.1, 8, 10, 13)."""

from __future__ import annotations

import hashlib
import itertools
import socket

import numpy as np
import pytest

from pgm.core.receiver.setup import ReceiverSetup
from pgm.net.endpoint.open import new_tsi
from pgm.net.sockets.raw_ip import PROTOCOL, strip_header
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.url import plan_url
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from tests.reference import DATA_PORT, TSI, data_packet
from tests.rfc.bench import BELOW, SOURCE, UP, A, B, Bench
from tests.unit.core.makers import MS, PARENT, SEGMENT, data_train, payload_of, sent_control, spm_packet
from tests.unit.core.reader import Reader
from tests.unit.topology.trees import changed, report

T = PacketType
STRANGER = "10.0.0.66"


@pytest.mark.rfc("W-01")
@pytest.mark.parametrize("options", [0, 4, 40])
def test_a_packet_begins_behind_the_network_header(options):
    """The protocol number is 113. A raw IPv4 socket also reads the network header with its options."""
    assert PROTOCOL == 113
    packet = data_packet(5, payload_of(5))
    header = bytes([0x40 | (20 + options) // 4]) + bytes(19 + options)
    chunk = np.frombuffer(b"left alone" + header + packet, np.uint8).copy()
    left = strip_header(chunk, 10, len(header) + len(packet))
    assert left == len(packet)
    assert chunk[: 10 + left].tobytes() == b"left alone" + packet


def _source() -> NodePlan:
    return plan_url(f"pgm://239.192.0.1?interface=lo&data_port={DATA_PORT}", Role.SOURCE)


@pytest.mark.rfc("W-12")
def test_a_session_is_named_by_the_host_and_a_random_port():
    """The port differs from the data-destination port, and changes with each start."""
    plan = _source()
    tsis = [new_tsi(plan, plan.streams[0]) for _ in range(200)]
    assert len({tsi[:6] for tsi in tsis}) == 1
    ports = {int.from_bytes(tsi[6:], "big") for tsi in tsis}
    assert len(ports) > 190
    assert all(1024 <= port < 65_536 and port != DATA_PORT for port in ports)


@pytest.mark.rfc("W-13")
def test_hosts_gsi_is_the_tail_of_the_md5_of_the_host_name():
    digest = hashlib.md5(socket.gethostname().encode(), usedforsecurity=False).digest()
    assert len(digest) == 16
    plan = _source()
    assert new_tsi(plan, plan.streams[0])[:6] == digest[10:]


@pytest.mark.rfc("SPMR-07", "W-14")
def test_an_spm_request_is_a_header_with_its_ports_in_upstream_order():
    """The request goes to the group, then to the sender of the data, and not to the path of an SPM."""
    reader = Reader(ReceiverSetup(SEGMENT, parents=(PARENT,)))
    reader.hear(data_train([0]), peer=SOURCE)
    reader.wait(300 * MS)
    octets = [bytes(send.octets) for _, send in reader.sent]
    assert [(send.to, send.hops) for _, send in reader.sent] == [(None, 1), (SOURCE, None)]
    for packet in octets:
        assert len(packet) == 16
        assert packet[:4] == DATA_PORT.to_bytes(2, "big") + TSI[6:]
        assert (packet[4], packet[8:14]) == (0x0C, TSI[:6])


@pytest.mark.rfc("SPMR-09", "RCV-21")
def test_hosts_naks_go_to_the_spm_path_and_not_the_spmr_target():
    reader = Reader(open_hold_ivl=MS)
    reader.hear(data_train([0, 1, 4]), peer=STRANGER)
    reader.wait(300 * MS)
    assert [send.to for _, send in reader.sent] == [None, STRANGER]
    reader.hear(spm_packet(1, 0, 4, path_nla=PARENT), peer=STRANGER)
    reader.sent.clear()
    reader.wait(100 * MS)
    assert reader.asked() == {2, 3}
    assert {send.to for _, send in reader.sent} == {PARENT}


@pytest.mark.rfc("SPMR-06")
def test_hosts_unanswered_spmr_is_repeated_after_a_new_delay():
    reader = Reader(spmr_bo_ivl=250 * MS, spmr_spm_ivl=SECOND, open_hold_ivl=MS)
    begun = reader.now
    reader.hear(data_train([0]))
    for _ in range(20):
        reader.hear(data_train([0]), after=SECOND)
    times = [at - begun for at, send in reader.sent if send.to is None]
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert len(gaps) > 10
    assert all(SECOND <= gap <= SECOND + 250 * MS for gap in gaps)
    assert len(set(gaps)) == len(gaps)


@pytest.mark.rfc("NE-23")
@pytest.mark.parametrize(("elim", "is_good"), [("1s", True), ("1001ms", False), ("2s", False)])
def test_hosts_elimination_is_a_fraction_of_the_repair_interval(elim, is_good):
    text = changed(("repairers = [", f'parameters = {{ nak_elim_ivl = "{elim}" }}\nrepairers = ['))
    assert ("elimination" not in {one.rule for one in report(text).errors}) == is_good


# False packets


@pytest.mark.rfc("SEC-02")
def test_hosts_false_spm_does_not_redirect_naks_of_known_parents():
    """The topology's parent takes precedence over the path of an SPM, and the claim is counted."""
    reader = Reader(ReceiverSetup(SEGMENT, parents=(PARENT,)))
    reader.hear(spm_packet(1, 0, -1, path_nla=PARENT), peer=PARENT)
    reader.hear(data_train([0]))
    reader.hear(spm_packet(2, 0, 0, path_nla=STRANGER), peer=STRANGER)
    reader.hear(data_train([3]))
    reader.wait(20 * MS)
    assert [send.to for _, send in reader.sent] == [PARENT]
    assert reader.core.counters.path_mismatches == 1
    bench = Bench().begin()
    bench.hear(spm_packet(2, 0, 19, path_nla=STRANGER), UP, STRANGER)
    bench.nak(A, 5)
    assert [send.to for _, send, _ in bench.sent(T.NAK)] == [SOURCE]


@pytest.mark.rfc("SEC-03")
def test_false_ncfs_delay_a_repair_and_do_not_prevent_it():
    """A false NCF costs at most NAK_RDATA_IVL and a retry."""
    reader = Reader(nak_rdata_ivl=200 * MS)
    reader.hear(spm_packet(1, 0, -1))
    reader.hear(data_train([0, 2]))
    ncf = sent_control(Bench().begin().nak(A, 1), T.NCF)[0]
    reader.hear(ncf, peer=STRANGER)
    reader.wait(199 * MS)
    assert reader.naks() == []
    reader.wait(20 * MS)
    assert reader.naks() == [[1]]


@pytest.mark.rfc("SEC-04")
def test_hosts_repair_from_below_ends_only_its_segment():
    bench = Bench().begin()
    bench.nak(A, 5)
    bench.nak(B, 5)
    bench.hear(data_train([5], kind=T.RDATA), A, BELOW[A.index])
    assert bench.sent(T.RDATA) == []
    bench.rdata(5)
    assert bench.where(T.RDATA) == [("b", (5,))]


@pytest.mark.rfc("SEC-02", "RCV-20")
def test_an_spm_that_is_out_of_sequence_changes_no_path():
    reader = Reader()
    reader.hear(spm_packet(5, 0, -1, path_nla=PARENT))
    reader.hear(spm_packet(5, 0, -1, path_nla=STRANGER))
    reader.hear(data_train([0, 2]))
    reader.wait(20 * MS)
    assert [send.to for _, send in reader.sent] == [PARENT]
