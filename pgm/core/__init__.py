"""The sans-IO machinery that all roles share. Nothing here reaches a clock, a socket, a thread or global randomness."""
