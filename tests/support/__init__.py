"""What tests share: one concept a file."""
