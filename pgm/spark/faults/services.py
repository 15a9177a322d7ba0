"""Reasons why a range service does not answer: found by connections of its own, since gRPC's texts do not tell them apart."""

from __future__ import annotations

import socket
import ssl
import struct
from urllib.parse import urlsplit

from pgm.spark.errors import CertificateRefused, RecorderDown, TlsMismatch

_WAIT_S = 2.0  # for each connection
_HTTP2_OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # and settings without values
_HTTP2_HEAD = struct.Struct(">3sBBI")  # length, type, flags and stream of a frame
_SETTINGS = 4
_STAND_IN = "or name one that stands in for it: recorders = A|B"


def fault_of(location: str, root_certificates: bytes | None, *, is_mutual: bool = False) -> RecorderDown | None:
    """Return why a service does not answer; None if it answers meanwhile, or for a reason that is not seen.

    `is_mutual` tells that clients show keys of nodes, which this function does not have.
    """
    address = urlsplit(location)
    place = (address.hostname or "", address.port or 0)
    silence = _silence_of(location, place)
    if silence is not None:
        return silence
    if address.scheme != "grpc+tls":
        if _speaks_plain(place):
            return None
        if _speaks_tls(place):
            return TlsMismatch(
                f"{location} does not answer: it speaks TLS, and the address says plain text",
                remedy="name it grpc+tls://, with tlsRootCerts or mutualTls as the service has it",
            )
        return _stranger(location)
    if _speaks_plain(place):
        return TlsMismatch(
            f"{location} does not answer: it speaks plain text, and the address says TLS",
            remedy="start it with --tls-cert and --tls-key, or with --mutual-tls; or name it grpc://",
        )
    if not _speaks_tls(place):
        return _stranger(location)
    if is_mutual:
        return CertificateRefused(
            f"{location} does not answer: one side refuses the keys of the other",
            remedy="the service needs the keys of a node among serviceNodes, and the topology files of both need both keys",
        )
    return _bad_certificate(location, place, root_certificates)


def _silence_of(location: str, place: tuple[str, int]) -> RecorderDown | None:
    """Return why no connection comes about; None if one does."""
    try:
        socket.create_connection(place, _WAIT_S).close()
    except socket.gaierror as error:
        return RecorderDown(
            f"{location} does not answer: the host name is unknown: {error.strerror}",
            remedy=f"correct its address, {_STAND_IN}",
        )
    except ConnectionRefusedError:
        return RecorderDown(
            f"{location} does not answer: nothing listens there",
            remedy=f"start it (pgm serve), correct its address, {_STAND_IN}",
        )
    except OSError as error:
        return RecorderDown(
            f"{location} does not answer: no connection: {error.strerror or error}",
            remedy=f"check the host, the network and its firewalls, {_STAND_IN}",
        )
    return None


def _stranger(location: str) -> RecorderDown:
    return RecorderDown(
        f"{location} does not answer: the program that listens there is no range service",
        remedy=f"correct its address, {_STAND_IN}",
    )


def _speaks_plain(place: tuple[str, int]) -> bool:
    """Return whether the other side answers HTTP/2, as gRPC does, in plain text."""
    try:
        with socket.create_connection(place, _WAIT_S) as connection:
            connection.sendall(_HTTP2_OPENING)
            head = connection.recv(_HTTP2_HEAD.size, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == _HTTP2_HEAD.size and bool(_HTTP2_HEAD.unpack(head)[1] == _SETTINGS)


def _context(root_certificates: bytes | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=None if root_certificates is None else root_certificates.decode())
    context.set_alpn_protocols(["h2"])
    return context


def _speaks_tls(place: tuple[str, int]) -> bool:
    context = _context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        _shake(context, place)
    except OSError:
        return False
    return True


def _shake(context: ssl.SSLContext, place: tuple[str, int]) -> None:
    with socket.create_connection(place, _WAIT_S) as connection:
        context.wrap_socket(connection, server_hostname=place[0]).close()


def _bad_certificate(location: str, place: tuple[str, int], root_certificates: bytes | None) -> RecorderDown | None:
    """Return what is wrong with the certificate of a service; None if it is good."""
    try:
        context = _context(root_certificates)
    except (ssl.SSLError, ValueError):
        return CertificateRefused(
            f"{location} does not answer: tlsRootCerts has no certificate", remedy="name a file of PEM certificates"
        )
    try:
        _shake(context, place)
    except ssl.SSLCertVerificationError as error:
        known = "the certificates of gRPC" if root_certificates is None else "tlsRootCerts"
        return CertificateRefused(
            f"{location} does not answer: its certificate is wrong by {known}: {error.verify_message}",
            remedy="name the certificate of its authority in tlsRootCerts, and the service by a host of its certificate",
        )
    except OSError as error:
        return RecorderDown(f"{location} does not answer: {error}", remedy="try again")
    return None
