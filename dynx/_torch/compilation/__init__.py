"""Observe and configure Dynamo's compilations: frames and outcomes, events, metrics, configuration, limits and backends."""
