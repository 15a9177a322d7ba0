"""Flight recorder: format of its ring, reading, and explanations of made records."""
