"""The contracts that plugin authors read: records, interfaces, specs, hooks, errors. Plugins import them from `rlcore.api`."""
