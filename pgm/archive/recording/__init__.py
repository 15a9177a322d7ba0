"""The recording side: from deliveries of a node to rows in the writer process."""
