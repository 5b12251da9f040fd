"""Rules DX2xx and DX501: causes of graph breaks."""
