"""State of one session: window edges, counts, and the table of sessions by TSI."""
