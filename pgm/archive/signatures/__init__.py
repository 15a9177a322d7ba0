"""Check of stored rows: who said them, by the proofs that were recorded with them."""
