"""Nodes of a small tree with keys, and TLS handshakes between them in memory."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pgm.mutual_tls.certificates import Certificate
from pgm.mutual_tls.identity import TlsIdentity
from pgm.mutual_tls.tree_file import identity_of_files
from pgm.trust.private_keys import PrivateFile, PrivateKeys
from tests.unit.trust.keys import private_keys

TODAY = datetime.now(UTC).date()
FIRST, END = TODAY - timedelta(days=30), TODAY + timedelta(days=300)
SEGMENT = '[segments.core]\ngroup = "239.192.9.9"\nport = 3056\ninterface = "127.0.0.0/8"\n'
NODES = (
    "[streams.prices]\ndata_port = 7500\n"
    '[nodes.exchange]\nrole = "source"\nsegment = "core"\naddress = "127.0.9.1"\nstreams = ["prices"]\n'
    '[nodes.recorder]\nrole = "repairer"\nsegment = "core"\naddress = "127.0.9.2"\nparents = ["exchange"]\n'
    '[nodes."desk-*"]\nrole = "receiver"\nsegment = "core"\naddresses = "127.0.9.10-127.0.9.19"\nparents = ["recorder"]\n'
)


def keys(number: int, first: date = FIRST, end: date = END) -> PrivateKeys:
    """Return the keys of a number, which are valid today by default."""
    return private_keys(1000 + number, first, end)


@attrs.define
class Forest:
    """Topology file and private files of a tree, in one folder."""

    folder: Path
    listed: dict[str, list[PrivateKeys]] = attrs.field(factory=dict)
    revoked: dict[str, str] = attrs.field(factory=dict)

    @property
    def file(self) -> Path:
        """Topology file."""
        return self.folder / "tree.toml"

    def write(self) -> Path:
        """Write the topology file as it shall be now."""
        lines = [f"{node} = {[one.public.line for one in own]}" for node, own in self.listed.items()]
        revoked = [f'{key_id} = "{why}"' for key_id, why in self.revoked.items()]
        text = "\n".join(['version = 1\nname = "forest"', SEGMENT, NODES, "[keys]", *lines, "[revoked]", *revoked])
        new = self.folder / "new.toml"
        new.write_text(text.replace("'", '"') + "\n")
        new.replace(self.file)
        return self.file

    def private_file(self, node: str, own: PrivateKeys) -> Path:
        """Write the private file of a node, where it is with PGM_KEY_DIR as the folder `keys`."""
        folder = self.folder / "keys" / "forest"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{node}.{own.public.id}.key"
        path.touch(mode=0o600)
        path.write_text(PrivateFile("forest", node, own).text())
        return path

    def identity(self, node: str, number: int = 0) -> TlsIdentity:
        """Return the identity of a node of the file by one of its keys."""
        return identity_of_files(self.file, self.private_file(node, self.listed[node][number]))


def forest(folder: Path) -> Forest:
    """Return a tree whose nodes have keys: exchange 1, recorder 2, desk-1 3 and desk-2 4."""
    made = Forest(folder, {"exchange": [keys(1)], "recorder": [keys(2)], "desk-1": [keys(3)], "desk-2": [keys(4)]})
    made.write()
    return made


def certificate(own: PrivateKeys, names: Sequence[x509.GeneralName], *, subject: str | None = None) -> Certificate:
    """Make a certificate with any names by the keys of a node, as its owner can."""
    now, key = datetime.now(UTC), ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(common_name(own.public.id if subject is None else subject))
        .issuer_name(common_name(own.public.id))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Certificate(own.sign_certificate(builder).public_bytes(Encoding.PEM), now + timedelta(hours=1), key)


def common_name(text: str) -> x509.Name:
    """Return a name of a subject or an issuer."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def plain_client(own: Certificate | None, folder: Path) -> ssl.SSLContext:
    """Return the context of a client of another program, which trusts any server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if own is not None:
        (file := folder / "client.pem").write_bytes(own.pem + own.private_pem())
        context.load_cert_chain(file)
    return context


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Make a handshake in memory. Return both ends, the server first. Raises `ssl.SSLError` of either end."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(up, down, server_side=True), client.wrap_bio(down, up)]
    waiting = [ends[1], ends[0]]
    while waiting:
        end = waiting.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(end)
    return ends[0], ends[1]
