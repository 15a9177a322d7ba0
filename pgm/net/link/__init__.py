"""One segment on the wire: reads, sends, and the connected group socket."""
