"""What a recording depends on besides its arguments, and how a change of it is noticed."""
