"""Every block of code of the pages runs in a test, or is checked here: Python that only defines is run, keys of TOML are settings, and
commands exist with their flags."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from rlcore_plugin_tools.show.describe import options_of

from rlcore.api import PluginKind
from rlcore.config.run_config import RunConfig
from rlcore.config.section import Partial
from rlcore.config.setting_table import core_settings
from rlcore.registry.plugin_registry import Registry
from tests.python_blocks import NOT_RUN, Block, mark_faults, python_faults
from tests.shell_lines import simple_commands
from tools.site.commands_page import command_parser, subcommands

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "recipes/README.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("plugins/*/*/README.md")),
]
LANGUAGES = {"python", "toml", "json", "jsonl", "sh", "console", "text", "yaml", "diff", "ini", "markdown"}
BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- test: ([^\n]*?) -->\s*\Z")


def blocks(text: str) -> list[Block]:
    found = []
    for match in BLOCK.finditer(text):
        mark = MARK.search(text, 0, match.start())
        inner = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
        found.append(Block(text.count("\n", 0, match.start()) + 1, match[2].strip(), mark[1] if mark else "", inner))
    return found


def faults(page: Path, text: str) -> list[str]:
    """One sentence for each block of a page that cannot be right."""
    found = blocks(text)
    own = "\n".join(block.mark + block.text for block in found if block.language == "python" or "[project]" in block.text)
    marks = "\n".join(block.mark for block in found)
    name = page.relative_to(ROOT).as_posix()
    said = []
    for place, block in enumerate(found):
        checks = {"toml": toml_faults, "json": json_faults, "jsonl": json_faults, "sh": shell_faults}
        if block.language not in LANGUAGES:
            problems = [f"the language is {block.language!r}; write one of {', '.join(sorted(LANGUAGES))}; output is text"]
        elif block.language == "python":
            problems = list(python_faults(name, block, found[:place], marks))
        elif block.language == "console":
            lines = "".join(f"{line[2:]}\n" for line in block.text.splitlines() if line.startswith("$ "))
            problems = list(shell_faults(lines, own)) if lines else ["no line begins with '$ '; name it text or sh"]
        else:
            problems = list(checks[block.language](block.text, own)) if block.language in checks else []
        if block.mark:
            problems += mark_faults(name, block.mark)
        said += [f"{name}:{block.line}: {problem}" for problem in problems]
    return said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_runs_or_is_right(page: Path) -> None:
    found = faults(page, page.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


# --- TOML and JSON -----------------------------------------------------------------------------------------------------


def json_faults(text: str, own: str) -> Iterator[str]:
    lines = text.splitlines() if len(text.splitlines()) > 1 and text.startswith("{") and "}\n{" in text else [text]
    for line in lines:
        try:
            json.loads(line)
        except ValueError as error:
            yield f"no JSON: {error}"


def toml_faults(text: str, own: str) -> Iterator[str]:
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        yield f"no TOML: {error}"
        return
    tables = all(isinstance(value, dict) or (isinstance(value, list) and isinstance(value[0], dict)) for value in found.values())
    if tables and found.keys() & RunConfig.model_fields.keys():
        yield from unknown(found, RunConfig, "", own)


def unknown(table: Mapping[str, Any], model: type[BaseModel], place: str, own: str) -> Iterator[str]:
    """The keys of a table that its section does not have."""
    for key, value in table.items():
        field = model.model_fields.get(key)
        if field is None:
            if place.endswith("data.dataset.") and key in ("repeat", "ratio"):
                continue
            yield f"{place}{key} is not a setting"
            continue
        partial = [mark.section for mark in field.metadata if isinstance(mark, Partial)]  # a table of [[sources]]
        section = next(iter([*partial, *sections_in(field.annotation)]), None)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict) and section is not None:
                yield from unknown(item, section, f"{place}{key}.", own)
            elif isinstance(item, dict) and key.endswith("options"):
                yield from unknown_options(item, f"{place}{key}", own)


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections in a type: itself, or those in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from sections_in(part)


@cache
def option_names() -> frozenset[str]:
    """The keys of the options of all installed plugins, whole tables included."""
    registry = Registry.discover()
    kinds = [kind for kind in PluginKind if kind is not PluginKind.ALGORITHM]
    paths = {option.path for kind in kinds for spec in registry.specs(kind) for option in options_of(registry, kind, spec.name)}
    fields = set()
    for kind in kinds:
        for spec in registry.specs(kind):
            model = registry.options_model(kind, spec.name)
            fields |= inner_fields(model) if model else set()
    return frozenset(
        {part for path in paths for part in path.split(".")} | fields | {spec.name for kind in kinds for spec in registry.specs(kind)}
    )


def inner_fields(model: type[BaseModel]) -> set[str]:
    """The keys of a model and of the models in it."""
    found = set(model.model_fields)
    for field in model.model_fields.values():
        for part in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                found |= inner_fields(part)
    return found


def unknown_options(table: Mapping[str, Any], place: str, own: str) -> Iterator[str]:
    """The keys that no installed plugin and no block of the page declares."""
    for key, value in table.items():
        if key not in option_names() and not re.search(rf"\b{re.escape(key)}\b", own):
            yield f"{place}.{key} is not an option of an installed plugin, or of one on this page"
        if isinstance(value, dict) and key in option_names() and place.endswith("_options"):
            yield from unknown_options(value, f"{place}.{key}", own)


# --- commands ----------------------------------------------------------------------------------------------------------

TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
PROJECTS = {
    project["name"]: set(project.get("optional-dependencies", {}))
    for file in (ROOT / "pyproject.toml", *ROOT.glob("plugins/*/*/pyproject.toml"))
    if (project := tomllib.loads(file.read_text(encoding="utf-8"))["project"])
}


def shell_faults(text: str, own: str) -> Iterator[str]:
    for words in simple_commands(text):
        program, rest = words[0].rpartition("/")[2], words[1:]
        if re.fullmatch(r"python[\d.]*", program) and rest[:1] == ["-m"] and len(rest) > 1:
            program, rest = (rest[1], rest[2:]) if rest[1] in ("pip", "rlcore") else ("-m", rest[1:])
        if program == "rlcore":
            yield from rlcore_faults(rest, own)
        elif program == "make":
            yield from (f"make has no target {word}" for word in rest if re.fullmatch(r"[a-z][\w-]*", word) and word not in TARGETS)
        elif program == "pip" and rest[:1] == ["install"]:
            yield from pip_faults(rest[1:], own)
        elif program == "-m" and re.match(r"(tools|benchmarks|tests)\.", rest[0]) and importlib.util.find_spec(rest[0]) is None:
            yield f"there is no module {rest[0]}"
        elif re.match(r"(tools|benchmarks|tests|examples)/", "".join(rest[:1])) and program.startswith("python"):
            yield from () if (ROOT / rest[0]).is_file() else (f"there is no file {rest[0]}",)


def pip_faults(words: list[str], own: str) -> Iterator[str]:
    for word in words:
        found = re.match(r"(?P<path>\.|(?:\./)?plugins/[\w/-]+)?(?P<name>rlcore[\w-]*)?(?:\[(?P<extras>[^\]]*)\])?", word)
        assert found is not None
        name = found["name"] or ""
        if found["path"] and found["path"] != ".":
            file = ROOT / found["path"] / "pyproject.toml"
            if not file.is_file():
                yield f"{found['path']} holds no package"
                continue
            name = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["name"]
        elif found["path"] == ".":
            name = "rlcore"
        if name and name not in PROJECTS:
            if name in own:
                continue
            yield f"there is no distribution {name}"
        elif name and (absent := set(filter(None, (found["extras"] or "").split(","))) - PROJECTS[name]):
            yield f"{name} has no extra {', '.join(sorted(absent))}"


@cache
def parser_of(name: str) -> Any:
    registry = Registry.discover()
    return command_parser(registry, name) if registry.has(PluginKind.COMMAND, name) else None


def rlcore_faults(words: list[str], own: str) -> Iterator[str]:
    while words[:1] == ["-p"]:
        words = words[2:]
    if not words or words[0] in ("--help", "-h", "--version", "-V", "COMMAND", "…", "..."):
        return
    name, *rest = words
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        return
    parser = parser_of(name)
    if parser is None:
        if f'"{name}"' not in own:
            yield f"rlcore has no command {name}"
        return
    if inner := subcommands(parser):
        chosen = next((word for word in rest if not word.startswith("-")), "")
        if re.fullmatch(r"[a-z_]+", chosen):
            if chosen not in inner:
                yield f"rlcore {name} has no {chosen}"
                return
            if (name, chosen) == ("show", "config"):
                parser = parser_of("train")
            else:
                yield from shown_faults(name, chosen, rest, own)
                parser = inner[chosen]
    for word in rest:
        if re.match(r"--?[A-Za-z]", word) and not known_flag(parser, word.partition("=")[0], own):
            yield f"rlcore {name} has no flag {word.partition('=')[0]}"
    yield from value_faults(parser, rest, own)


def known_flag(parser: Any, flag: str, own: str) -> bool:
    key = flag.lstrip("-").removeprefix("no-").replace("-", "_").rpartition(".")[2]
    if flag in parser._option_string_actions or flag in ("--help", "-h", "--help-all") or flag.startswith("--data.template."):
        return True
    takes_settings = "--max-steps" in parser._option_string_actions or "--reward-deadline" in parser._option_string_actions
    return takes_settings and flag.startswith("--") and (key in option_names() or bool(re.search(rf"\b{key}\b", own)))


def shown_faults(name: str, kind: str, words: list[str], own: str) -> Iterator[str]:
    """``rlcore show KIND NAME`` names an installed plugin, or one of the page."""
    typed = next((word for word in words if word != kind and not word.startswith("-")), "")
    if (
        name == "show"
        and re.fullmatch(r"[a-z][a-z0-9_.-]*", typed)
        and not Registry.discover().has(kind, typed)
        and f'"{typed}"' not in own
    ):
        yield f"there is no {kind} {typed}"


CHOOSES = {
    "rewards": PluginKind.REWARD,
    "algorithm.name": PluginKind.ALGORITHM,
    "algorithm.loss": PluginKind.LOSS,
    "algorithm.estimator": PluginKind.ESTIMATOR,
    "algorithm.loss_variation": PluginKind.AGGREGATION,
    "algorithm.kl_kind": PluginKind.KL,
    "inference.name": PluginKind.INFERENCE,
    "training.name": PluginKind.TRAINING,
    "training.optimizer": PluginKind.OPTIMIZER,
    "training.lr_schedule": PluginKind.LR_SCHEDULE,
    "training.model_hook": PluginKind.MODEL_HOOK,
    "run.runtime": PluginKind.RUNTIME,
    "weights.transport": PluginKind.TRANSFER,
    "sampling.conversation": PluginKind.CONVERSATION,
    "sampling.environment": PluginKind.ENVIRONMENT,
    "data.sampler": PluginKind.SAMPLER,
}


def value_faults(parser: Any, words: list[str], own: str) -> Iterator[str]:
    """A flag that chooses a plugin names an installed one, or one of the page."""
    for flag, value in pairwise(words):
        action = parser._option_string_actions.get(flag)
        path = getattr(getattr(action, "setting", None), "path", "")
        if path not in CHOOSES or not re.fullmatch(r"[a-z][a-z0-9_]*", value) or value in ("auto", "none"):
            continue
        if not Registry.discover().has(CHOOSES[path], value) and not re.search(rf"\b{value}\b", own):
            yield f"{flag} {value}: there is no {CHOOSES[path]} {value}"


# --- the guard itself --------------------------------------------------------------------------------------------------

WRONG = {
    "```\nx\n```\n": "the language is ''",
    "```python\ndef f(:\n```\n": "Python does not compile",
    "```python\nfrom rlcore.api import Rewards\n```\n": "rlcore.api has no Rewards",
    "```python\nimport rlcore.nothing\n```\n": "rlcore.nothing cannot be imported",
    "<!-- test: x.py -->\n```python\nx = 1\n```\n": "no test reads the block 'x.py'",
    "<!-- test: x.toml -->\n```toml\nx = 1\n```\n": "no test reads the block 'x.toml'",
    "```python\nimport rlcore\n\n\ndef f():\n    rlcore.trian()\n```\n": "rlcore has no trian",
    "```python\nfrom rlcore.api import PluginKind\n\nx = PluginKind.REWORD\n```\n": "PluginKind has no REWORD",
    "```python\ndef f():\n    return rlcoer.train()\n```\n": "the block does not define rlcoer",
    "```python\nx = {}['a']\n```\n": "the block fails: KeyError",
    "```python\nclass A:\n    raise SystemExit\n```\n": "the block fails: SystemExit",
    "```python\nraise SystemExit\n```\n": "line 1 of the block does more than define",
    "```python\nfrom rlcore.api import RewardSpec\n\n\ndef rlcore_register_rewards():\n    return [RewardSpec(nam='a')]\n```\n": (
        "the block fails: TypeError"
    ),
    "```toml\n[training]\nlora_rnk = 1\n```\n": "training.lora_rnk is not a setting",
    "```toml\n[[rewards]]\nname = 'boxed'\n[rewards.options]\ncorect_score = 1\n```\n": "rewards.options.corect_score is not an option",
    "```toml\n[[sources]]\nname = 'a'\n[sources.sampling]\ntop_q = 1\n```\n": "sources.sampling.top_q is not a setting",
    "```toml\na = \n```\n": "no TOML",
    "```json\n{'a': 1}\n```\n": "no JSON",
    "```sh\nrlcore trian run.toml\n```\n": "rlcore has no command trian",
    "```sh\nrlcore train run.toml --lora-rnk 1\n```\n": "rlcore train has no flag --lora-rnk",
    "```sh\nrlcore train -a dappo\n```\n": "-a dappo: there is no algo dappo",
    "```sh\nrlcore show reward boxd\n```\n": "there is no reward boxd",
    "```sh\nrlcore env bild x\n```\n": "rlcore env has no bild",
    "```sh\ncd x && FOO=1 make tests\n```\n": "make has no target tests",
    "```sh\npip install 'rlcore[everything]'\n```\n": "rlcore has no extra everything",
    "```sh\npip install rlcore-plugin-nothing\n```\n": "there is no distribution rlcore-plugin-nothing",
    "```sh\npython -m tools.sites\n```\n": "there is no module tools.sites",
    "```console\nrlcore trian\n```\n": "no line begins with '$ '",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_block_is_named(text: str) -> None:
    (found,) = faults(ROOT / "docs" / "reference" / "glossary.md", text)
    assert found.startswith("docs/reference/glossary.md:")
    assert WRONG[text] in found


@pytest.mark.parametrize("name", ["plugins/rewards/math/README.md", "docs/how_to/environments.md", "docs/explanation/architecture.md"])
def test_a_mark_counts_only_if_a_test_names_the_page_with_its_folder(name: str) -> None:
    text = "<!-- test: nobody.py -->\n```python\nthis is not python (\n```\n"
    compiled, marked = faults(ROOT / name, text)
    assert "Python does not compile" in compiled
    assert "no test reads the block" in marked
    assert faults(ROOT / "docs" / "authors" / "environments.md", text) == [compiled.replace(name, "docs/authors/environments.md")]


def test_a_block_uses_what_an_earlier_one_defines() -> None:
    page, text = ROOT / "docs" / "start.md", "```python\nclass A:\n    x = 1\n```\n```python\nfrom mine import A\n\ny = A.{}\n```\n"
    assert faults(page, text.format("x")) == []
    assert "AttributeError" in faults(page, text.format("z"))[0]


@pytest.mark.parametrize(("page", "part"), NOT_RUN)
def test_a_block_that_is_not_run_is_there(page: str, part: str) -> None:
    assert [block for block in blocks((ROOT / page).read_text(encoding="utf-8")) if part in block.text and not block.mark]


def test_right_blocks_are_accepted() -> None:
    text = """
```sh
rlcore -p no:ray train run.toml -d a.jsonl --algo dapo --correct-score 2 | tee log  # it's a comment
RLCORE_DISABLE=x .venv/bin/rlcore show config run.toml --lora-rank 8 && make docs ARGS=--x
pip install -e plugins/tools/tools 'rlcore[all]' && python -m benchmarks.step
cat > run.toml <<'END'
rlcore trian
END
```
```toml
data.dataset = [{path = "a.jsonl", repeat = 2}]
[run.controller_options.early_stopping]
patience = 1
```
```json
{"a": 1}
{"b": 2}
```
"""
    assert faults(ROOT / "docs" / "start.md", text) == []
    assert core_settings()["training.lora_rank"].flags == ("--lora-rank",)
