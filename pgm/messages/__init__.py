"""What applications put into PGM's messages where that has a form of its own. Pure; no sockets, no clock."""
