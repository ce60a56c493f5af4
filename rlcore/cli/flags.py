"""The flags of ``train``, made from the typed settings of the core and of the chosen plugins.

argparse only collects words, by setting. ``rlcore.config`` handles their meaning, their bounds and their errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.cli.help_values import planned_values
from rlcore.cli.parser import CollectWords, Parser
from rlcore.config.layers import TEMPLATE_VALUE, TypedFlag, as_typed
from rlcore.config.options import plugin_settings
from rlcore.config.plan import preview_settings
from rlcore.config.run_config import RunConfig
from rlcore.config.setting_table import Setting, arity, core_settings, expected, model_settings
from rlcore.contracts.specs import PluginKind

if TYPE_CHECKING:
    from rlcore.registry.plugin_registry import Registry

__all__ = ["add_train_flags", "train_flags"]

_COMMON = {
    "the model  [model]": "model.model",
    "the data  [data]": "data.dataset data.max_prompt_tokens",
    "the rewards  [[rewards]]": "rewards",
    "the algorithm  [algorithm]": "algorithm.name algorithm.kl_coeff algorithm.loss",
    "training  [training]": "training.train_batch_size training.train_microbatch_size training.learning_rate training.lora_rank "
    "training.name training.num_trainers training.tensor_parallel_size training.zero_stage training.device",
    "sampling  [sampling]": "sampling.num_generations sampling.max_new_tokens sampling.temperature",
    "generation  [inference]": "inference.name inference.num_inferencer inference.inference_microbatch_size inference.device",
    "staleness  [schedule]": "schedule.max_staleness",
    "evaluation  [eval]": "eval.eval_dataset eval.eval_interval",
    "output  [log]": "log.save_interval log.trackers",
    "the run  [run]": "run.num_episodes run.max_steps run.seed run.project run.run_dir",
}
"""The settings that ``--help`` shows, by title and TOML table of their group. ``--help-all`` shows the others below them."""
_VARIABLE = "--data.template."
_WORDS = {"a whole number": "INT", "a finite number": "NUMBER", "a text": "TEXT", "a table": "JSON", "a pair": "NUMBER"}


def train_flags(args: argparse.Namespace) -> dict[str, TypedFlag]:
    """Return the typed words by dotted path. The last one of a repeated flag counts."""
    return dict(getattr(args, "typed", None) or {})


def add_train_flags(
    parser: argparse.ArgumentParser,
    names: Mapping[str, Any] | None = None,
    *,
    reads: Callable[[str], bool] = lambda path: True,
    told: Mapping[str, str] | None = None,
    more: Callable[[Sequence[str]], Sequence[str]] = lambda words: (),
) -> None:
    """Give a command the flags of ``train``. Read the typed words with ``train_flags(args)``.

    Options of plugins are added once the words are known: those of the plugins that the words, and the TOML files among them, choose.

    :param names: plugins to choose if the words choose none (``{"algorithm.name": "grpo", "rewards": "boxed"}``).
    :param reads: whether a setting (``run.seed``) has flags here, as for ``plan_run``.
    :param told: the help of settings that have another meaning here; they are shown first.
    :param more: returns further words that choose plugins, given the typed ones, which count more.
    """
    assert isinstance(parser, Parser), f"a command's parser is an rlcore.api.commands.Parser, not {type(parser).__name__}"
    parser.set_defaults(typed={})
    parser.add_argument("--help-all", action="help", help="show all flags, not only the common ones")
    taken = set(map(_plain, parser._option_string_actions))
    settings = {path: setting for path, setting in core_settings().items() if reads(path)}
    for path, text in (told or {}).items():
        _add(parser, replace(settings.pop(path), help=text), taken, {})
    for title, paths in _COMMON.items():
        group = parser.add_argument_group(title)
        for path in paths.split():
            if path in settings:
                _add(group, settings.pop(path), taken, {})
    groups: dict[str, Any] = {}
    for setting in settings.values():
        section = setting.section
        if section not in groups:
            field = RunConfig.model_fields[section]
            doc = field.description if section == "rewards" else field.annotation.__doc__
            groups[section] = parser.add_argument_group((doc or section).partition("\n")[0].rstrip("."))
        _add(groups[section], setting, taken, {}, rare=True)
    parser.prepare = lambda asked, words: _add_plugin_flags(asked, [*more(words), *words], names or {}, reads)


def _metavar(setting: Setting) -> Any:
    words = expected(setting.type)
    first = next((metavar for phrase, metavar in _WORDS.items() if words.startswith(phrase)), None)
    if arity(setting.type) == 2:
        return ("LOW", "HIGH") if setting.key.endswith("range") else ("NUMBER", "NUMBER")
    if arity(setting.type) == "many":
        return "TEXT"
    auto = "|auto" if words.endswith(", or auto") else ""
    return first + auto if first else "{" + words.replace(", or ", ",").replace(" or ", ",").replace(", ", ",") + "}"


def _plain(flag: str) -> str:
    """Return the common spelling of a flag of several words, which can be typed with "-" or "_"."""
    return flag.replace("_", "-")


def _add(group: Any, setting: Setting, taken: Collection[str], uses: Mapping[str, Sequence[Setting]], *, rare: bool = False) -> None:
    """Add the flags of a setting to ``group``.

    :param taken: spellings of other settings, as ``_plain`` returns them.
    :param uses: the plugin options that have each spelling."""
    spellings = [flag for flag in setting.spellings if _plain(flag) not in taken and len(uses.get(flag, ())) < 2]
    if not spellings:  # a plugin that is chosen twice, which the rules refuse
        return
    kind = arity(setting.type)
    common: dict[str, Any] = {"action": CollectWords, "setting": setting, "dest": "typed", "default": argparse.SUPPRESS}
    default = "none" if setting.default in (None, (), [], {}, "") else as_typed(setting.default)
    text = f"{setting.help} [{default}]".replace("%", "%%")
    told = {"help": argparse.SUPPRESS, "rare_help": text} if rare else {"help": text}
    if kind == "bool":
        group.add_argument(*spellings, nargs="?", const="true", metavar="", **told, **common)
        negated = [f"--no-{flag[2:]}" for flag in spellings if flag.startswith("--")]
        negated += [f"--no_{flag[2:]}" for flag in spellings if flag.startswith("--") and "_" in flag]
        negated = [flag for flag in negated if _plain(flag) not in taken and flag not in uses]
        group.add_argument(*negated, nargs=0, help=argparse.SUPPRESS, negated=True, **common)
        return
    nargs = "+" if kind in ("many", 2) else None
    group.add_argument(*spellings, nargs=nargs, metavar=_metavar(setting), **told, pair=kind == 2, **common)


def _add_plugin_flags(parser: Parser, words: Sequence[str], names: Mapping[str, Any], reads: Callable[[str], bool]) -> None:
    registry: Registry | None = parser.get_default("registry")
    if registry is None:
        from rlcore.registry.plugin_registry import Registry as Found

        registry = Found.discover()
        parser.set_defaults(registry=registry)
    if reads("data.template"):
        _add_template_flags(parser, words)
    files, flags = _peeked(parser, words)
    asked = bool({"-h", "--help", "--help-all"} & set(words))
    if asked:
        files = [file for file in files if file.is_file()]
    chosen = preview_settings(files, flags, registry, names, reads)
    table = plugin_settings(chosen)
    if "algorithm.loss" not in chosen.parts:  # its recipe is not installed, which is reported once the flags are read
        for spec in registry.specs(PluginKind.LOSS):
            owner, model = registry.owner(PluginKind.LOSS, spec.name), registry.options_model(PluginKind.LOSS, spec.name)
            table.update(model_settings(model, "algorithm.options", owner) if model and owner == "rlcore" else {})
    table = {path: setting for path, setting in table.items() if reads(path)}
    taken = set(map(_plain, parser._option_string_actions))
    uses: dict[str, list[Setting]] = {}
    for setting in table.values():
        for flag in setting.spellings:
            uses.setdefault(flag, []).append(setting)
    parser.shared = {flag: settings for flag, settings in uses.items() if len(settings) > 1 and _plain(flag) not in taken}
    groups: dict[str, Any] = {}
    for setting in table.values():
        if setting.owner not in groups:
            section = "rewards.options" if setting.section == "rewards" else setting.path.rpartition(".")[0]
            groups[setting.owner] = parser.add_argument_group(f"options of {setting.owner}  [{section}]")
        _add(groups[setting.owner], setting, taken, uses)
    if asked:
        _tell_values(parser, planned_values(files, flags, registry, names, reads), every="--help-all" in words)


def _tell_values(parser: Parser, values: Mapping[str, str], *, every: bool) -> None:
    """Replace defaults in the help by the values of the run; ``every`` shows the flags that ``--help`` leaves out, too."""
    for action in parser._actions:
        if not isinstance(action, CollectWords) or action.negated:
            continue
        action.help = action.rare_help or action.help if every else action.help
        path = action.setting.path
        value = values.get(path, values.get(path.replace("rewards.", "rewards.0.", 1)))
        if value is not None and action.help not in (None, argparse.SUPPRESS):
            action.help = f"{action.setting.help} [{value}]".replace("%", "%%")


def _add_template_flags(parser: Parser, words: Sequence[str]) -> None:
    """Add a flag for each variable of the chat template that is typed: ``--data.template.enable_thinking false``."""
    for flag in dict.fromkeys(word.partition("=")[0] for word in words if word.startswith(_VARIABLE)):
        path = flag[2:].replace("-", "_")
        if flag in parser._option_string_actions or not path.rpartition(".")[2].isidentifier():
            continue
        given: dict[str, Any] = {"flags": (flag,), "spellings": (flag,), "type": TEMPLATE_VALUE, "default": None}
        setting = Setting(path=path, **given, help="variable of the chat template")
        parser.add_argument(
            flag, action=CollectWords, setting=setting, dest="typed", default=argparse.SUPPRESS, metavar="VALUE", help=setting.help
        )


def _peeked(parser: Parser, words: Sequence[str]) -> tuple[list[Path], dict[str, TypedFlag]]:
    """Return the files, and the core's settings, among words that may also hold options of plugins that are not known yet."""
    files: list[Path] = []
    found: dict[str, TypedFlag] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        action = parser._option_string_actions.get(flag)
        if action is None:
            files += [Path(word)] if word.endswith(".toml") and not word.startswith("-") else []
            continue
        values = [value] if equals else parser.values_of(flag, action, rest)
        unclear = not equals and any(parser.looks_like_option(word) for word in values)  # may be an option of a plugin
        if isinstance(action, CollectWords) and not unclear:
            found[action.setting.path] = action.typed(flag, values)
    return files, found
