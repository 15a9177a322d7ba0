"""Campaigns with real processes: long runs by hand, and a small share of each in the suite."""
