"""Example topologies for clouds, in namespaces that join groups by IGMPv2 alone."""
