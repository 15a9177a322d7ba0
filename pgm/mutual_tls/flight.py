"""Options of Arrow Flight for both ends of a connection between nodes. Nothing here imports Arrow.

Flight verifies the chain of a certificate, and tells a server the first name in it (`ServerCallContext.peer_identity`). Each
call is checked by that name. Flight takes keys once: those that the file gets later count for a new server or client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgm.mutual_tls.gate import PeerGate
from pgm.mutual_tls.names import SHARED_NAME

if TYPE_CHECKING:
    from pgm.mutual_tls.identity import TlsIdentity, TlsMaterial


def flight_server_options(identity: TlsIdentity) -> dict[str, Any]:
    """Return arguments of `FlightServerBase`. The certificate ends with the keys of the node."""
    material = identity.material(is_fixed=True)
    return {
        "tls_certificates": [(material.certificate.pem, material.certificate.private_pem())],
        "verify_client": True,
        "root_certificates": material.authorities,
    }


def flight_client_options(identity: TlsIdentity, servers: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return arguments of `FlightClient` for some nodes as servers; without names for all nodes.

    The certificate lasts a day: make a new client before. Raises `UsageError` for a name without keys.
    """
    return client_options_of(identity.material(PeerGate(identity, servers).names))


def client_options_of(material: TlsMaterial) -> dict[str, Any]:
    """Return arguments of `FlightClient` with a certificate and authorities."""
    return {
        "tls_root_certs": material.authorities,
        "cert_chain": material.certificate.pem,
        "private_key": material.certificate.private_pem(),
        "override_hostname": SHARED_NAME,
    }
