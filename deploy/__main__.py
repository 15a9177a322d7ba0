"""Entry point: `python -m deploy` runs the `pgm` command."""

from deploy.cli import main

if __name__ == "__main__":
    main(prog_name="pgm")
