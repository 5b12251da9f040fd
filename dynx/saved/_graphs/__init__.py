"""Edit the forward and backward graph of a compilation: what the forward graph saves is packed, and unpacked in backward."""
