"""Private files of the nodes of this host, and the check of a node's identity at its start."""
