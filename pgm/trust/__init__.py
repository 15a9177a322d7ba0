"""Identities of nodes, and the formats that are signed with them, without input or output."""
