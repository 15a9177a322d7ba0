"""Many receivers of one segment as one vectorised model, beside receivers with the production core."""
