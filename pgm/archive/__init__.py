"""Recorded streams: segments of Arrow record batches on disk, and the range service that hands them out (docs/guide/archive.md)."""
