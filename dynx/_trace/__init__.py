"""The trace bus: what every feature that looks at compilations shares."""
