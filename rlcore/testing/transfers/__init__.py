"""The suites for weight transfers, and fakes."""
