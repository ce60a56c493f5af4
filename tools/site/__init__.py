"""The site of the documentation: ``python -m tools.site`` builds it offline; ``make docs`` installs what it needs and calls it."""
