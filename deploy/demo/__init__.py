"""The command `pgm demo`: a whole tree on the loopback interface, with injected losses and an account."""
