"""`python -m deploy` is the `pgm` command."""

from deploy.cli import main

if __name__ == "__main__":
    main(prog_name="pgm")
