"""What the installed torch offers: `doctor` checks every private name that dynx uses, `canaries` try what they do."""
