"""Contexts of `ssl` for both ends of a connection between nodes.

A context is used like any other. Each connection gets the keys and the certificate of its time, so contexts last as long as
their process. After the handshake the context finds the node of the other end, or ends the connection.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

import attrs
import sniffio

from pgm.errors import PeerRefused
from pgm.mutual_tls.gate import PeerGate
from pgm.mutual_tls.identity import TlsIdentity, TlsMaterial
from pgm.mutual_tls.members import PEER_OF_TASK, TlsPeer
from pgm.mutual_tls.names import key_id_of_untrusted
from pgm.mutual_tls.refusals import Refusals

_WANTS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


@attrs.frozen
class _Terms:
    """Terms of a context: its gate, its side, and whether the other end may have no certificate."""

    gate: PeerGate
    is_server: bool
    may_be_unnamed: bool = False

    @property
    def protocol(self) -> int:
        return ssl.PROTOCOL_TLS_SERVER if self.is_server else ssl.PROTOCOL_TLS_CLIENT


class _CheckedObject(ssl.SSLObject):
    """Connection in memory, as trio and asyncio use it, with the check of the other end."""

    def do_handshake(self) -> None:
        _judge(self, super().do_handshake)


class _CheckedSocket(ssl.SSLSocket):
    """Connection over a socket, with the check of the other end."""

    def do_handshake(self, block: bool = False) -> None:
        _judge(self, lambda: super(_CheckedSocket, self).do_handshake(block))


class _InnerContext(ssl.SSLContext):
    """Context of one version of the keys."""

    terms: _Terms
    sslobject_class = _CheckedObject
    sslsocket_class = _CheckedSocket


class NodeTlsContext(ssl.SSLContext):
    """Context whose connections take the newest keys."""

    _terms: _Terms
    _known: tuple[TlsMaterial, _InnerContext] | None = None

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Make a connection in memory with the newest keys."""
        return self.newest().wrap_bio(*args, **kwargs)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """Make a connection over a socket with the newest keys."""
        return self.newest().wrap_socket(*args, **kwargs)

    def newest(self) -> _InnerContext:
        """Return the context of the newest keys."""
        # A server trusts all nodes of the file: it can name those that it does not permit.
        names = () if self._terms.is_server else self._terms.gate.names
        material = self._terms.gate.identity.material(names)
        if self._known is None or self._known[0] is not material:
            self._known = material, _inner_context(material, self._terms)
        return self._known[1]


def server_context(
    identity: TlsIdentity,
    clients: tuple[str, ...] = (),
    refusals: Refusals | None = None,
    *,
    may_be_unnamed: bool = False,
) -> NodeTlsContext:
    """Return the context of a server for some nodes as clients, by names or patterns; without names for all nodes.

    With `may_be_unnamed` clients without a certificate are admitted as well, and `pgm.mutual_tls.members.current_peer` is None for them. Raises
    `UsageError` for a name without keys.
    """
    return context_of_gate(PeerGate(identity, clients, refusals), may_be_unnamed=may_be_unnamed)


def context_of_gate(gate: PeerGate, *, may_be_unnamed: bool = False) -> NodeTlsContext:
    """Return the context of a server that admits the clients of a gate, as `server_context` does."""
    return _context(_Terms(gate, True, may_be_unnamed))


def client_context(identity: TlsIdentity, servers: tuple[str, ...] = ()) -> NodeTlsContext:
    """Return the context of a client that connects to some nodes, by names or patterns; without names to any node.

    The name or address by which the client connects is not compared: the keys tell the node. Raises `UsageError` for
    a name without keys.
    """
    return _context(_Terms(PeerGate(identity, servers), False))


def peer_of(connection: ssl.SSLObject | ssl.SSLSocket) -> TlsPeer | None:
    """Return the other end of a connection after its handshake; None without a certificate. Raises `PeerRefused`."""
    context = connection.context
    assert isinstance(context, _InnerContext), "the connection has a context of another module"
    certificate = connection.getpeercert()
    if not certificate:
        return None
    return context.terms.gate.admit_untrusted(_key_name_untrusted(certificate))


def _context(terms: _Terms) -> NodeTlsContext:
    context = NodeTlsContext(terms.protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context._terms = terms  # noqa: SLF001 - `SSLContext` makes its objects in __new__
    context.newest()  # errors come now, not with the first connection
    return context


def _inner_context(material: TlsMaterial, terms: _Terms) -> _InnerContext:
    inner = _InnerContext(terms.protocol)
    inner.terms = terms
    inner.minimum_version = ssl.TLSVersion.TLSv1_3
    inner.check_hostname = False
    inner.verify_mode = ssl.CERT_OPTIONAL if terms.may_be_unnamed else ssl.CERT_REQUIRED
    if terms.is_server:
        inner.num_tickets = 0  # a resumed session would skip the check of the certificate
    inner.set_alpn_protocols(["http/1.1"])
    inner.load_verify_locations(cadata=material.authorities.decode())
    _load_certificate(inner, material)
    return inner


def _load_certificate(context: ssl.SSLContext, material: TlsMaterial) -> None:
    """Give a context its certificate. `ssl` reads private keys from files alone, so the file is encrypted."""
    password = token_hex(16)
    with tempfile.TemporaryDirectory(prefix="pgm-tls-") as folder:
        file = Path(folder) / "certificate.pem"
        file.write_bytes(material.certificate.pem + material.certificate.private_pem(password.encode()))
        context.load_cert_chain(file, password=password)


def _judge(connection: _CheckedObject | _CheckedSocket, shake: Any) -> None:
    """Finish a handshake, and find the node of the other end. Raises `ssl.SSLError` if there is none that may connect."""
    context = connection.context
    assert isinstance(context, _InnerContext)
    gate = context.terms.gate
    try:
        shake()
    except _WANTS:
        raise
    except ssl.SSLError as error:
        gate.refuse_handshake(error.reason or str(error), getattr(error, "verify_message", ""))
        raise
    try:
        peer = peer_of(connection)
    except PeerRefused as error:
        raise ssl.SSLError(ssl.SSL_ERROR_SSL, f"{error.code}: {error.message}") from error
    if context.terms.is_server and _is_in_task():  # a handler that connects to another node keeps its own peer
        PEER_OF_TASK.set(peer)


def _is_in_task() -> bool:
    """Return whether a task runs. A peer in the context of a thread would be that of all later tasks."""
    try:
        sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return False
    return True


def _key_name_untrusted(certificate: Mapping[str, Any]) -> str:
    """Return the first name of a certificate if it is that of the keys of the issuer, otherwise an empty text."""
    kind, name = next(iter(certificate.get("subjectAltName", ())), ("", ""))
    issuer = ((("commonName", key_id_of_untrusted(name)),),)
    return str(name) if kind == "DNS" and certificate.get("issuer") == issuer else ""
