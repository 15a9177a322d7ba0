"""Metrics of `pgm monitor` for a collector of OpenTelemetry, by its official SDK."""
