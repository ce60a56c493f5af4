"""Conformance suites: pytest classes that a plugin author subclasses, one for each interface.

A subclass says how to make the thing under test; every ``test_`` method checks one rule and says which. Nothing here needs pytest itself,
so a suite's methods can also be called one by one.
"""
