"""Output of the commands: tables, exit codes, event lines, SVG pictures."""
