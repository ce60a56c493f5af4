"""The command ``env``: makes and finds the virtual environments that plugins describe by lock files."""
