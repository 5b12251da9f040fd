"""Edit the graphs of a compilation: the forward graph packs the tensors that it saves, the backward graph unpacks them."""
