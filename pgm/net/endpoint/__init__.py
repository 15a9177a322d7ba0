"""Sources and receivers that applications open, over either driver."""
