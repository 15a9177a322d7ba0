"""The exit codes of the `pgm` command. Here and not with the commands, so that the command starts fast."""

EXIT_FAILED = 1
EXIT_USAGE = 2
SIGNALLED = 128  # and the signal's number, as a shell says of what a signal ended
EXIT_INTERRUPTED = SIGNALLED + 2
