"""Rules DX2xx and DX501: graph breaks because of values and sizes, and in blocks, generators and libraries."""
