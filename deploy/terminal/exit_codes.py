"""Exit codes of the `pgm` command, in a module without imports so that the command starts fast."""

EXIT_FAILED = 1
EXIT_USAGE = 2
SIGNALLED = 128  # plus the signal's number, as shells report a process that a signal ended
EXIT_INTERRUPTED = SIGNALLED + 2
