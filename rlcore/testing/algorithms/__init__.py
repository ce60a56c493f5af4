"""Suites for the parts of an algorithm: advantage estimators, losses, aggregations, KL estimators, corrections; and a fake of each."""
