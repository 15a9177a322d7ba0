"""Container image of `pgm`: Debian packages and a wheel in an archive after the OCI image layout, without an engine."""
