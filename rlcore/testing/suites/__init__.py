"""Conformance suites: pytest classes that a plugin author subclasses, one for each interface.

A subclass says how to make the thing under test; every ``test_`` method checks one rule and says which. Nothing here needs pytest itself,
so a suite's methods can also be called one by one.

Recipes have no suite: they are data, and the program checks them. ``rlcore show algo NAME`` finds the recipe's estimator and loss and
prints what it sets; ``rlcore train FILE.toml --algo NAME --dry-run`` checks every default and option of it, as a run would, and loads
nothing.
"""
