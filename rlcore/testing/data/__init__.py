"""The suites for data sources and row formats, and a fake of each."""
