"""NAK aggregator: RFC 3208 section 7 as a process. The modules `core` and `elimination` are sans-IO."""
