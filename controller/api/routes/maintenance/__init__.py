"""Routes for operators of the service: alerts, health, recovery, garbage, and what is installed."""
