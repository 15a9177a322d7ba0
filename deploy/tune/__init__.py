"""The command `pgm tune`: search for better timers and repairer positions."""
