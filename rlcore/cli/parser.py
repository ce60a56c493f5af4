"""An argparse parser with one-sentence errors. Unknown options get the closest match, and positionals may be anywhere.

argparse would read ``-tbz 4`` as ``-t bz``, split positionals, and refuse values that begin with a dash. Therefore the words are sorted
here first (every option with its values, then the rest), and argparse only collects them.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from rlcore.contracts.errors import UsageError
from rlcore.registry.error_context import closest

if TYPE_CHECKING:
    from rlcore.config.layers import TypedFlag
    from rlcore.config.setting_table import Setting

__all__ = ["CollectWords", "ExampleFormatter", "Parser", "SectionFormatter"]

_BOOLEAN = ("true", "false", "yes", "no", "on", "off", "1", "0")


class SectionFormatter(argparse.HelpFormatter):
    """Shows the short and the long spelling of an option, but not every alias."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=36, width=min(120, shutil.get_terminal_size().columns))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        shown = getattr(action, "shown", ())
        if not shown:
            return super()._format_action_invocation(action)
        metavar = action.metavar or ""
        words = " ".join(metavar) if isinstance(metavar, tuple) else metavar
        return f"{', '.join(shown)} {words}".rstrip()


class ExampleFormatter(SectionFormatter, argparse.RawDescriptionHelpFormatter):
    """Leaves examples as they are written."""


class CollectWords(argparse.Action):
    """Stores the words of a flag, with its typed spelling, under the path of its setting: ``args.typed`` is {path: TypedFlag}.

    All flags that are made from settings use this action. The settings handle the meaning of the words, their bounds and their errors.
    ``rare_help`` is the help in ``--help-all`` of a flag that ``--help`` leaves out.
    """

    def __init__(self, *args: Any, setting: Setting, negated: bool = False, pair: bool = False, rare_help: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.setting = setting
        self.negated = negated
        self.pair = pair
        self.rare_help = rare_help
        self.shown = tuple(flag for flag in setting.flags if flag in self.option_strings) or tuple(self.option_strings[:1])

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        words = values if isinstance(values, list) else [values]
        typed = dict(getattr(namespace, "typed", None) or {})
        typed[self.setting.path] = self.typed(option_string or self.setting.flag, words)
        namespace.typed = typed

    def typed(self, flag: str, words: Sequence[str]) -> TypedFlag:
        """Return the words after the flag in the form of its setting: a switch alone means true."""
        from rlcore.config.layers import TypedFlag

        return TypedFlag(flag, ("false",) if self.negated else tuple(words) or ("true",))


class Parser(argparse.ArgumentParser):
    """The parser of one command. Errors are raised as UsageError; ``prepare`` may add options once the words are known.

    ``shared`` holds spellings that several plugins have declared, which therefore belong to none.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", SectionFormatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)
        self.prepare: Any = None
        self.shared: dict[str, list[Setting]] = {}

    def error(self, message: str) -> NoReturn:
        """Convert argparse's own errors to UsageError."""
        raise UsageError(f"{self.prog}: {message}; type {self.prog} --help for its arguments")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is not among an argument's choices, with the closest choice."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            called = action.metavar or action.dest
            raise UsageError(f"{self.prog}: {value!r} is not a valid {called}{closest(str(value), known)}; choose from {', '.join(known)}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Sort the words, then let argparse collect them."""
        words = list(args or ())
        if self.prepare is not None:
            prepare, self.prepare = self.prepare, None
            prepare(self, words)
        grouped = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        if grouped or "-" not in self.prefix_chars:
            return super().parse_known_args(words, namespace)
        return super().parse_known_args(self.sorted_words(words), namespace)

    def sorted_words(self, words: Sequence[str]) -> list[str]:
        """Return positionals first, then every option joined to its values. Raises UsageError for an unknown option or a missing value."""
        loose: list[str] = []
        bound: list[str] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                loose += rest
                break
            if not self.looks_like_option(word):
                loose.append(word)
                continue
            flag, equals, _ = word.partition("=")
            action = self._option_string_actions.get(flag)
            if action is None:
                raise UsageError(self.unknown(flag))
            values = [] if equals else self.values_of(flag, action, rest)
            glued = bool(values) and action.nargs in (None, "?")
            bound += [f"{word}={values[0]}"] if glued else [word, *values]
        dashed = any(word.startswith("-") for word in loose)
        return [*bound, "--", *loose] if dashed else [*loose, *bound]

    def looks_like_option(self, word: str) -> bool:
        """Return whether a word begins with a dash and is neither a lone dash nor a negative number."""
        return word.startswith("-") and word != "-" and not _is_number(word)

    def unknown(self, flag: str) -> str:
        """Return the message for an option that this command does not have, or that several plugins have."""
        if flag in self.shared:
            settings = self.shared[flag]
            owners = " and of ".join(setting.owner for setting in settings)
            return f"{flag} is an option of {owners}; type {' or '.join(setting.long for setting in settings)}"
        known = [item for item in self._option_string_actions if item.startswith("--") == flag.startswith("--")]
        other = flag[1:] if flag.startswith("--") else f"-{flag}"  # a dash too many or too few
        likely = f", did you mean {other!r}" if other in self._option_string_actions else closest(flag, known)
        return f"{flag} is not an option of {self.prog}{likely}; type {self.prog} --help for the list"

    def values_of(self, flag: str, action: argparse.Action, rest: list[str]) -> list[str]:
        """Take the values of an option from the words after it. Raises UsageError if one is missing."""
        if action.nargs == 0:
            return []
        if action.nargs == "?":
            return [rest.pop(0)] if rest and rest[0].lower() in _BOOLEAN else []
        if action.nargs is None:
            if not rest or rest[0] in self._option_string_actions or rest[0] == "--":
                raise UsageError(f"{flag} needs a value: type {flag} {_example(action)}")
            return [rest.pop(0)]
        return self._several(flag, action, rest)

    def _several(self, flag: str, action: argparse.Action, rest: list[str]) -> list[str]:
        wanted = getattr(action, "pair", False)
        values: list[str] = []
        while rest and not self.looks_like_option(rest[0]) and not rest[0].endswith(".toml"):
            values.append(rest.pop(0))
            if wanted and (len(values) == 2 or values == ["none"]):
                break
        if not values or (wanted and len(values) != 2 and values != ["none"]):
            many = "two values" if wanted else "at least one value"
            ended = rest[0] if rest and rest[0].endswith(".toml") else ""
            before = f" before {ended}, which is a configuration file" if ended else ""
            raise UsageError(f"{flag} needs {many}{before}: type {flag} {_example(action)}")
        return values


def _example(action: argparse.Action) -> str:
    metavar = action.metavar or "VALUE"
    return " ".join(metavar) if isinstance(metavar, tuple) else metavar


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
