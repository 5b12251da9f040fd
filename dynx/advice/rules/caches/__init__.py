"""Rules DX4xx: compilations that could have been avoided by torch's compile caches on disk, or by a PGO profile."""
