"""Rules DX711 to DX715: compiled autograd captures a backward pass again."""
