"""The designated local repairer: RFC 3208 section 9.5 as a process. `core` and `cache` are sans-IO."""
