"""The file that configures the tree: model, load, check, plan. Knows no sockets and no cores."""
