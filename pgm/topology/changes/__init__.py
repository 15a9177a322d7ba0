"""Changes of a running tree: what differs between two topology files, and the steps from one to the other."""
