"""Rules DX1xx: causes of recompiles."""
