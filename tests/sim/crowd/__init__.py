"""The model of many receivers, beside the production core."""
