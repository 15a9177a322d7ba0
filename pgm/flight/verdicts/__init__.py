"""Explanations from the recorders of many nodes: one time line, the life of a packet, verdicts, and their forms."""
