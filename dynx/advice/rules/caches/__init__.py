"""Rules DX4xx: compilations that a cache or a profile could have avoided."""
