"""Mutual TLS between nodes: each end has a certificate that the keys of its node have signed.

The public keys of the topology file decide which certificates count. `docs/guide/security.md` describes the certificates.

| to | call |
|---|---|
| read the file and a private key | `pgm.mutual_tls.tree_file.identity_of_files`, or `pgm.net.keys.tls_identity.node_identity` by the name of a node |
| serve with `ssl` (trio, asyncio, `http.server`) | `server_context`, then `current_peer` or `peer_of` |
| connect with `ssl` (trio, asyncio, `http.client`, `urllib`, httpx) | `client_context` |
| serve or connect with Arrow Flight | `flight_server_options` with a `PeerGate`, or `flight_client_options` |
"""
