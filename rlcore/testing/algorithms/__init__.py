"""Suites for the parts of an algorithm: advantage estimators, losses, aggregations, KL estimators, corrections, learning-rate schedules,
group filters, optimizers; and a fake of each."""
