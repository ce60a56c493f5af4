"""Error messages for a caller in Python: they name arguments (``reward="boxed"``), where those of the command line name flags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import get_args, get_origin

from rlcore.config.setting_table import Setting, core_settings, without_bounds
from rlcore.contracts.errors import RlcoreError

__all__ = ["in_python", "python_errors"]

_ARGUMENTS: Mapping[str, str] = {
    "rewards": "reward",
    "algorithm.name": "algorithm",
    "inference.name": "backend",
    "rewards.deadline": "reward_deadline",
}
"""Arguments of ``rlcore.train`` that are not named like the last part of their setting."""
_AMBIGUOUS = ("name", "dtype", "device", "deadline")
"""Keys that several sections have."""
_FLAG = re.compile(r"(?<![\w-])(type )?(--?[A-Za-z][\w-]*(?:\.[\w-]+)*)(?: ('[^']*'|\"[^\"]*\"|[^\s;,()]+))?")
_COMMAND = re.compile(r"((?:rlcore|pip) [a-z][^;]*)")
"""A command to type in a shell, which keeps its flags."""
_WORDS = frozenset(
    ["a", "and", "bounds", "each", "for", "if", "in", "is", "leaves", "means", "must", "of", "or", "reads", "says", "so", "to"]
)
"""Words after a flag that are not its value."""


def in_python(text: str, files: Mapping[Path, str]) -> str:
    """Return a message with arguments in place of flags, and rows by their place in the argument that holds them.

    :param files: the name of the argument whose rows a file holds.
    """
    for path, name in files.items():
        first, *rest = text.split(str(path))
        text = "".join([first, *(name + re.sub(r"^:(\d+)", _place, part) for part in rest)])
    return "".join(part if _COMMAND.fullmatch(part) else _FLAG.sub(_argument, part) for part in _COMMAND.split(text))


def _place(found: re.Match[str]) -> str:
    return f"[{int(found[1]) - 1}]"


def _argument(found: re.Match[str]) -> str:
    verb, flag, word = found.groups()
    if flag in ("--step", "--best"):  # arguments of rlcore.evaluate
        return f"best=True {word or ''}".rstrip() if flag == "--best" else f"step={word or '…'}"
    known = {spelling: setting for setting in core_settings().values() for spelling in setting.spellings}
    setting = known.get(flag) or known.get(flag.replace("--no-", "--"))
    if setting is None:
        return found[0]
    value, rest = _value(setting, word or "")
    if not value:
        value = str(not flag.startswith("--no-")) if setting.type is bool else "…"
    key = _ARGUMENTS.get(setting.path, setting.key)
    argument = f'**{{"{setting.path}": {value}}}' if key in _AMBIGUOUS else f"{key}={value}"
    return f"{'pass ' if verb else ''}{argument}{rest}"


def _value(setting: Setting, word: str) -> tuple[str, str]:
    """Return the value in Python, "" if the word after the flag is not its value; and the text that follows it."""
    kind = without_bounds(setting.type)
    choices = [str(choice) for choice in get_args(kind)] if get_origin(kind) is not None else []
    if re.fullmatch(r"-?\d[\d.e+-]*", word):
        return word.rstrip("."), "." * (len(word) - len(word.rstrip(".")))
    if word[:1] in "'\"" and len(word) > 1:
        return (word[1:-1] if word[1] in "{[" else word), ""
    if word in choices or (kind is str and word and word not in _WORDS):
        return f'"{word}"', ""
    return (word, "") if word.isupper() else ("", f" {word}" if word else "")


@contextmanager
def python_errors(files: Mapping[Path, str]) -> Iterator[None]:
    """A context whose errors name arguments. It changes only their text."""
    try:
        yield
    except RlcoreError as error:
        error.args = (in_python(str(error), files), *error.args[1:])
        raise
