"""Rules DX9xx: what shortens the compile time of a program that has nothing else to change."""
