"""Pictures of the documentation: ``python -m tools.pictures`` draws them into docs/pictures; `make pictures` calls it."""
