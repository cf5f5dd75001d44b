"""Prometheus rules as values: what is recorded, what alerts, and why the limits are what they are."""
