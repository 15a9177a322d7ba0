"""Files for TLS: the certificate of a service, and the authority that a client trusts."""

from __future__ import annotations

import ssl
from pathlib import Path

import attrs

from pgm.errors import UsageError


@attrs.frozen
class CertificateFiles:
    """Certificate of a service with its private key, both as PEM."""

    certificate: Path
    key: Path


def certificate_of(certificate: Path | None, key: Path | None) -> CertificateFiles | None:
    """Return the files of --tls-cert and --tls-key, or None without both. Raises `UsageError` if they do not fit."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("a certificate and its key go together", remedy="give --tls-cert and --tls-key")
    try:
        # An encrypted key gets an empty password, because no service could ask for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=bytes)
    except ssl.SSLError as error:
        raise UsageError(
            f"{certificate} and {key} are no certificate with its key: {error.reason or error}",
            remedy="use PEM files, the key without a password, the server's certificate before the certificates of its issuers",
        ) from None
    return CertificateFiles(certificate, key)


def trusted_by(authorities: Path | None) -> ssl.SSLContext | None:
    """Return the context of a client that trusts the authorities in a file, or None without a file.

    Raises `UsageError` for a file without certificates.
    """
    if authorities is None:
        return None
    try:
        context = ssl.create_default_context(cafile=str(authorities))
    except OSError as error:  # errors of SSL are among them
        raise UsageError(
            f"--ca-file {authorities}: {error.strerror or error}", remedy="give the certificate of the authority as PEM"
        ) from error
    context.set_alpn_protocols(["http/1.1"])
    return context
