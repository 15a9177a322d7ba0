"""This version beside the one before in one tree: in virtual time, and as processes on sockets."""
