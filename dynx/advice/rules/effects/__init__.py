"""Rules DX8xx: mutations that compiled code does not repeat, so that objects keep their old values."""
