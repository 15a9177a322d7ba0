"""Simulation of a whole tree in virtual time: production cores, a network with faults, and checkers."""
