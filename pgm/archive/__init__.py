"""Archives of recorded streams, and the range service that serves them.

An archive is a directory of segments of Arrow record batches. docs/guide/archive.md describes the format and the service.
"""
