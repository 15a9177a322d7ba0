"""Who takes part: one small class each, all with the protocol of `deploy.bench.contender`."""
