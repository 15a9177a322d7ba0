"""Container image: its archive, and a run of it in namespaces, without an engine."""
