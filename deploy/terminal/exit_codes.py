"""Exit codes of the `pgm` command, in a module without imports so that the command starts fast."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 plus SIGINT, as shells report an interrupted process
