"""The suite for controllers, and a fake one."""
