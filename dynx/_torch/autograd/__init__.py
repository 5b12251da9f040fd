"""What happens below Dynamo: AOTAutograd, inductor's entry, the autograd engine, saved tensors, optimizers and hooks."""
