"""Flight recorder of nodes on real sockets, and its cost."""
