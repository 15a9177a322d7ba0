"""Sans-IO machinery that all roles share. No module here reaches a clock, a socket, a thread or global randomness."""
