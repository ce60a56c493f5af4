"""Suites for the parts of an algorithm: advantage estimators, losses, aggregations, KL estimators, corrections, learning-rate schedules;
and a fake of each."""
