"""Late join: requests for history, and answers from caches upstream."""
