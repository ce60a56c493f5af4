"""An argparse parser with one-sentence errors: unknown options get the closest match, positionals may stand anywhere.

argparse would read ``-tbz 4`` as ``-t bz``, split positionals, and refuse values that begin with a dash; so the words are sorted
here first (every option with its values, then the rest) and argparse only collects them.
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
    """Shows the short and the long spelling of an option, not every alias."""

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
    """Keeps the words of a flag under the path of its setting, and the spelling that was typed: ``args.typed`` is {path: TypedFlag}.

    The one collector of flags that are made from settings; what the words mean, their bounds and their errors belong to the settings.
    ``rare_help``: what ``--help-all`` says of the flag, if ``--help`` leaves it out.
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
        """The words behind the flag, as its setting takes them: a switch alone means true."""
        from rlcore.config.layers import TypedFlag

        return TypedFlag(flag, ("false",) if self.negated else tuple(words) or ("true",))


class Parser(argparse.ArgumentParser):
    """The parser of one command. Errors are raised as UsageError; ``prepare`` may add options once the words are known.

    ``shared``: spellings that several plugins have declared, which are options of none.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", SectionFormatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)
        self.prepare: Any = None
        self.shared: dict[str, list[Setting]] = {}

    def error(self, message: str) -> NoReturn:
        """argparse's own errors become ours."""
        raise UsageError(f"{self.prog}: {message}; type {self.prog} --help for what it takes")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A word that is none of an argument's choices gets the closest one."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            called = action.metavar or action.dest
            raise UsageError(f"{self.prog}: {value!r} is no {called}{closest(str(value), known)}; choose from {', '.join(known)}")

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
        """Positionals first, then every option glued to its values; UsageError for an unknown option or a missing value."""
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
        """True for what begins with a dash and is neither a lone dash nor a negative number."""
        return word.startswith("-") and word != "-" and not _is_number(word)

    def unknown(self, flag: str) -> str:
        """The sentence for an option that this command does not have, or that several plugins have."""
        if flag in self.shared:
            settings = self.shared[flag]
            owners = " and of ".join(setting.owner for setting in settings)
            return f"{flag} is an option of {owners}; type {' or '.join(setting.long for setting in settings)}"
        known = [item for item in self._option_string_actions if item.startswith("--") == flag.startswith("--")]
        other = flag[1:] if flag.startswith("--") else f"-{flag}"  # a dash too many, or one too few
        likely = f", did you mean {other!r}" if other in self._option_string_actions else closest(flag, known)
        return f"{flag} is not an option of {self.prog}{likely}; type {self.prog} --help for the list"

    def values_of(self, flag: str, action: argparse.Action, rest: list[str]) -> list[str]:
        """Take the values of an option out of the words behind it; UsageError if one is missing."""
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
