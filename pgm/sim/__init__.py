"""Simulation of a whole tree in virtual time: production cores and codecs.

The network has configurable faults, and checkers observe every run.
"""
