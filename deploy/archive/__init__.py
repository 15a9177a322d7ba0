"""Commands for recorded streams: `pgm record`, `pgm archive` and `pgm serve`."""
