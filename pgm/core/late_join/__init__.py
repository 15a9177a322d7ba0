"""Late joiners: questions about history, and answers from caches above."""
