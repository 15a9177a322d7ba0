"""Recording side: from the deliveries of a node to rows in the writer process."""
