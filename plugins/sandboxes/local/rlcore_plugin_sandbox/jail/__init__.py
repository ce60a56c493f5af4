"""What runs inside: the zygote, and the walls it puts around each program. Standard library only; nothing of rlcore."""
