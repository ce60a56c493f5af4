"""The code inside the jail: the zygote, and the walls that it builds around each program. It imports only the standard library, nothing of
rlcore."""
