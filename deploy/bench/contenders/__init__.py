"""Contenders of `pgm bench`, one module for each transport."""
