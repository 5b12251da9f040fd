"""Rules DX8xx: mutations by traced code that compiled code does not repeat, so that objects keep their old values."""
