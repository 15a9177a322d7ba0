"""Octets to values and back: packet and option tables, trains, checksum, serial numbers.

No state, no time, no sockets. Everything here is a pure function of its arguments, and every function
whose name ends in `_untrusted` takes octets from the network and raises nothing but `WireError`.
"""
