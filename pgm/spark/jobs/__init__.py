"""Jobs over telemetry and simulations: losses, repairs, timers, summaries, parallel runs."""
