"""The NAK aggregator: RFC 3208 section 7 as a process. `core` and `elimination` are sans-IO."""
