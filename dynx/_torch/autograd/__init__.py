"""Access to torch's layers below Dynamo: AOTAutograd, inductor, the autograd engine, saved tensors, optimizers and hooks."""
