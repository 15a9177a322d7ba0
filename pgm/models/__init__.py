"""Formulas for the costs of a repair tree: sends, NAKs, parity, back-off, rates and latencies.

All functions are pure: numbers in, numbers out. `docs/internals/models.md` shows the simulator beside each of them.
"""
