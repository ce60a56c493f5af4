"""Code that runs in the sandbox: text that the host process sends, standard library only. The host process imports only ``wire``."""
