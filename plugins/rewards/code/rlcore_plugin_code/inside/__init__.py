"""What runs in the sandbox: text that the host sends along, standard library only. The host imports ``wire`` alone."""
