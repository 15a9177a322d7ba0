"""Entry point: `python -m deploy` runs the `pgm` command."""

import gc

from deploy.cli import main


def run() -> None:
    """Run the command, without garbage collection until its modules are imported.

    Imports make no garbage, and each collection would walk all modules again.
    """
    gc.disable()
    main(prog_name="pgm")


if __name__ == "__main__":
    run()
