"""The suite for samplers, and a fake one."""
