"""What checking guards costs per call, and which settings of torch make it cheaper."""
