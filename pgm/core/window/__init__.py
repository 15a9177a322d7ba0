"""Transmit and receive windows, trail advance, and reassembly of fragments."""
