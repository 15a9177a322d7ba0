"""Mutual TLS of the range service: each call is that of a node of the topology file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from cryptography import x509

from pgm.archive.client import RangeClient
from pgm.archive.errors import ArchiveError
from pgm.archive.requests import RangeRequest
from pgm.archive.service.collection import Archives
from pgm.archive.service.service import RangeService, ServiceAccess
from pgm.archive.store.writer import ArchiveWriter
from pgm.mutual_tls.certificates import Certificate
from pgm.mutual_tls.flight import flight_client_options
from pgm.mutual_tls.gate import PeerGate
from pgm.mutual_tls.names import SHARED_NAME, name_of_keys
from pgm.mutual_tls.refusals import Refusals
from pgm.units import MILLISECOND
from tests.net.support.pages import blocks, page
from tests.unit.archive.makers import TSI_TEXT, append, log_to, messages, small
from tests.unit.mutual_tls.parties import Forest, certificate, forest, keys

PATIENCE_S = 10.0


@pytest.fixture
def tree(tmp_path: Path) -> Forest:
    return forest(tmp_path)


@pytest.fixture
def refusals() -> Refusals:
    return Refusals()


@contextmanager
def serving(tree: Forest, refusals: Refusals, clients: tuple[str, ...] = ()) -> Iterator[RangeService]:
    writer = ArchiveWriter(tree.folder / "archive", small(), log_to([]))
    append(writer, [messages(0, 90)])
    writer.sync()
    access = ServiceAccess(gate=PeerGate(tree.identity("recorder"), clients, refusals))
    service = RangeService(
        Archives(writer.directory), "grpc+tls://127.0.0.1:0", small(archive_poll_ivl=MILLISECOND), access=access
    )
    try:
        yield service
    finally:
        service.end()
        writer.close()


@contextmanager
def client(service: RangeService, tls: dict[str, Any]) -> Iterator[Any]:
    with flight.connect(f"grpc+tls://127.0.0.1:{service.port}", **tls) as made:
        yield made


def with_certificate(tls: dict[str, Any], own: Certificate) -> dict[str, Any]:
    return {**tls, "cert_chain": own.pem, "private_key": own.private_pem()}


def calls(client: Any) -> list[Any]:
    """Return one call of each kind."""
    within = flight.FlightCallOptions(timeout=PATIENCE_S)
    ticket = RangeRequest(TSI_TEXT).to_bytes()
    descriptor = flight.FlightDescriptor.for_command(ticket)

    def put() -> None:
        writer, _ = client.do_put(flight.FlightDescriptor.for_command(b""), pa.schema([("value", pa.binary())]), within)
        writer.close()

    return [
        lambda: list(client.do_action(flight.Action("holdings", b""), within)),
        lambda: list(client.list_actions(within)),
        lambda: list(client.list_flights(b"", within)),
        lambda: client.get_flight_info(descriptor, within),
        lambda: client.do_get(flight.Ticket(ticket), within).read_all(),
        put,
    ]


def test_right_node_reads_rows(tree: Forest, refusals: Refusals) -> None:
    with serving(tree, refusals, ("desk-*",)) as service:
        tls = flight_client_options(tree.identity("desk-1"), ("recorder",))
        reader = RangeClient(f"grpc+tls://127.0.0.1:{service.port}", PATIENCE_S, tls)
        (extent,) = reader.holdings(TSI_TEXT)
        assert extent.rows == 90
        assert max(piece.end for piece in reader.rows(RangeRequest(TSI_TEXT))) == 90
        reader.close()
        wrong = RangeClient(
            f"grpc+tls://127.0.0.1:{service.port}", 2.0, flight_client_options(tree.identity("desk-1"), ("desk-2",))
        )
        with pytest.raises(ArchiveError, match="andshake failed"):
            wrong.holdings(TSI_TEXT)
        wrong.close()
    assert sum(refusals.counts.values()) == 0


def test_every_call_of_other_nodes_is_refused(tree: Forest, refusals: Refusals) -> None:
    with (
        serving(tree, refusals, ("desk-2",)) as service,
        client(service, flight_client_options(tree.identity("desk-1"))) as desk,
    ):
        for call in calls(desk):
            with pytest.raises(
                flight.FlightUnauthenticatedError, match=r"PGM-PEER: desk-1 \(keys .* is none of desk-2"
            ):
                call()
    assert refusals.counts["not-permitted"] == 6


@pytest.mark.parametrize(
    "names", [[SHARED_NAME], [SHARED_NAME, name_of_keys(keys(3).public.id)], [f"x.{name_of_keys(keys(3).public.id)}"]]
)
def test_shared_name_identifies_no_client(tree: Forest, refusals: Refusals, names: list[str]) -> None:
    own = certificate(keys(3), [x509.DNSName(name) for name in names])
    tls = with_certificate(flight_client_options(tree.identity("desk-1")), own)
    with serving(tree, refusals) as service, client(service, tls) as odd:
        for call in calls(odd):
            with pytest.raises(flight.FlightUnauthenticatedError, match="PGM-PEER: a certificate begins with the name"):
                call()
    assert refusals.counts["unnamed"] == 6


def test_strangers_and_names_of_others_get_no_connection(tree: Forest, refusals: Refusals) -> None:
    """Flight gives the first name of any kind, so a URI with the name of another node must not pass."""
    tls = flight_client_options(tree.identity("desk-1"))
    victim = name_of_keys(keys(4).public.id)
    own_name = x509.DNSName(name_of_keys(keys(3).public.id))
    strangers = [
        {key: tls[key] for key in ("tls_root_certs", "override_hostname")},
        with_certificate(tls, certificate(keys(9), [x509.DNSName(victim)])),
        with_certificate(tls, certificate(keys(3), [x509.DNSName(victim)])),
        with_certificate(tls, certificate(keys(3), [x509.UniformResourceIdentifier(victim), own_name])),
        with_certificate(tls, certificate(keys(3), [x509.RFC822Name(f"x@{victim}"), own_name])),
        with_certificate(tls, certificate(keys(3), [], subject=victim)),
    ]
    with serving(tree, refusals) as service:
        for stranger in strangers:
            with client(service, stranger) as refused, pytest.raises(flight.FlightUnavailableError):
                list(refused.do_action(flight.Action("holdings", b""), flight.FlightCallOptions(timeout=2.0)))


def test_keys_that_are_revoked_end_calls_and_tails(
    tree: Forest, refusals: Refusals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgm.mutual_tls.identity._LOOK_S", 0.0)
    with serving(tree, refusals) as service, client(service, flight_client_options(tree.identity("desk-1"))) as desk:
        within = flight.FlightCallOptions(timeout=PATIENCE_S)
        tail = desk.do_get(flight.Ticket(RangeRequest(TSI_TEXT, tail=True).to_bytes()), within)
        assert tail.read_chunk().data.num_rows == 90
        ends: list[str] = []
        waiting = threading.Thread(target=lambda: ends.append(_end_of(tail)))
        waiting.start()
        tree.revoked[keys(3).public.id] = "2026-12-01 desk-1: stolen"
        tree.write()
        waiting.join(PATIENCE_S)
        for call in calls(desk):
            with pytest.raises(flight.FlightUnauthenticatedError, match="are revoked: 2026-12-01 desk-1: stolen"):
                call()
    assert "are revoked: 2026-12-01 desk-1: stolen" in ends[0]
    assert refusals.counts["revoked"] == 7


def _end_of(tail: Any) -> str:
    try:
        tail.read_chunk()
    except (pa.ArrowException, StopIteration) as error:
        return str(error)
    return "rows"


def test_program_of_the_archive_page_runs(tree: Forest, refusals: Refusals, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = (block for block in blocks(page("guide/archive.md"), "python") if "flight_client_options" in block)
    monkeypatch.setenv("PGM_KEY_DIR", str(tree.folder / "keys"))
    tree.private_file("desk-1", keys(3))
    with serving(tree, refusals, ("desk-1",)) as service:
        program = program.replace("tree.toml", str(tree.file)).replace("10.0.2.5:3057", f"127.0.0.1:{service.port}")
        made: dict[str, Any] = {}
        exec(program, made)
        with made["client"] as desk:
            assert len(list(desk.list_flights())) == 1
