"""Sends of other threads while an event loop sleeps."""
