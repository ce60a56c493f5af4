"""What a plugin author reads: records, interfaces, specs, hooks, errors. Plugins import them from `rlcore.api`."""
