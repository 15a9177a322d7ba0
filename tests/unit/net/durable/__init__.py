"""Positions of durable receivers."""
