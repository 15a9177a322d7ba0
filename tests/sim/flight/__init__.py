"""Explanations of losses that a test makes at places known only to the test."""
