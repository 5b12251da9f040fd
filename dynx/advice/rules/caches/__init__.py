"""Rules DX4xx: compilations that torch's compile caches on disk, or a PGO profile of dynamic sizes, could have avoided."""
