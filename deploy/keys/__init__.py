"""The command `pgm keys`: keys of nodes, on their hosts and in the topology file."""
