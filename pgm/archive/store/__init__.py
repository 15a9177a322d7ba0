"""Segments on disk: format, index, recovery, writer, reader, selection of rows."""
