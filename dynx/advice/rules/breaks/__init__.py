"""Rules DX2xx and DX501 about data and places: graph breaks because of values and sizes, blocks, generators, libraries."""
