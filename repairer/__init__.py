"""Designated local repairer: RFC 3208 section 9.5 as a process. The modules `core` and `cache` are sans-IO."""
