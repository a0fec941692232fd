"""How commands are called: their other names, and the look of their help."""
