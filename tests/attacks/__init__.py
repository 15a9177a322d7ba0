"""Attackers that know everything but the private keys: their forgeries, and the networks in which they try them."""
