"""Faults as a user sees them: reasons in one line, without tracebacks of Spark's processes."""
