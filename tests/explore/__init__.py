"""Search of the production cores' states: every order of losses, copies, arrivals and timers of a small tree."""
