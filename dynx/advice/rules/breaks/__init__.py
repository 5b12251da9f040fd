"""Rules DX2xx and DX501: graph breaks because of values and sizes, in generators and libraries, and in `with` blocks."""
