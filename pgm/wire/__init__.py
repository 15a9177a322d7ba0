"""Codec between octets and values: packets, options, trains, checksums, sqns.

The functions have no state, no time and no sockets; each result depends on the arguments alone. A function whose name
ends in `_untrusted` takes octets from the network, and raises nothing but `WireError`.
"""
