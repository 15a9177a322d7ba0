"""The command `pgm report`: a page about recorded telemetry."""
