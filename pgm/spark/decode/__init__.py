"""Typed columns of the values, beside the columns of the archive's rows."""
