"""Sources and receivers that applications open, on either driver."""
