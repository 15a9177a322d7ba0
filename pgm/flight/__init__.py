"""Flight recorder: what befell lost packets at each node in the last minutes, and the explanation of one packet's life."""
