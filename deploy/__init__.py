"""The composition root: the `pgm` command, the roles, the supervisor. It imports everything; nothing imports it."""
