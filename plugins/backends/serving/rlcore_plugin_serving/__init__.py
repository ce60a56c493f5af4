"""What the backends of serving engines share. This module registers nothing yet."""

rlcore_api = "1.0"
