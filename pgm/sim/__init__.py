"""The whole tree in virtual time: the production cores and codecs, a network that is told how to misbehave, and checkers."""
