"""Prediction of a tree by formulas: sends, NAKs and repair latency of each link and node."""
