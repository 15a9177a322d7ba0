"""Jobs over telemetry and simulations."""
