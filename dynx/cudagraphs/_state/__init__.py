"""The state that a recording depends on besides its arguments (modules, optimizer, autocast), and checks for changes."""
