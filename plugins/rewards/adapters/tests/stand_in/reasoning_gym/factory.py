"""Curricula, as reasoning_gym.factory has them."""

from dataclasses import dataclass
from types import SimpleNamespace


@dataclass
class SumsConfig:
    largest: int
    size: int = 500
    seed: int = 0


class SumsCurriculum:
    def __init__(self):
        self.attributes = {"largest": SimpleNamespace(levels=[9, 99, 999])}
        self._level = 0

    def set_global_level(self, level):
        self._level = level

    def generate_configuration(self, defaults):
        return SumsConfig(**{**defaults, "largest": self.attributes["largest"].levels[self._level]})


def has_curriculum(name):
    return name == "sums"


def create_curriculum(name):
    return SumsCurriculum()
