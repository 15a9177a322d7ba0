"""Fleet of hosts: agents found from the topology file, and one view of all nodes."""
