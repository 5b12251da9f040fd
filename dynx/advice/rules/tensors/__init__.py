"""Rules DX1xx about tensors: recompiles because of a size, a dtype, a device or another property of a tensor."""
