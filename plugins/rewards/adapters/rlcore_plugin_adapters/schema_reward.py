"""JSON that fits a JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from rlcore_plugin_extraction import Extraction

from rlcore.api import Outcome, PluginError, Reward, RewardInput, Score
from rlcore_plugin_adapters.adapter_options import SchemaOptions

__all__ = ["SchemaReward"]

_FENCE = re.compile(r"^[ \t]*```[ \t]*(\w*)[ \t]*$", re.MULTILINE)


class SchemaReward(Reward):
    """Right or wrong; text that cannot be read as JSON is ``malformed``. References to external schemas are never followed."""

    def __init__(self, options: SchemaOptions | None = None) -> None:
        self.options = options or SchemaOptions()
        self.requires = () if self.options.file else (self.options.column,)
        self._extract = Extraction(by=("text",), think=self.options.think)
        self._schema = Path(self.options.file).expanduser().read_text(encoding="utf-8") if self.options.file else ""

    def open(self) -> None:
        """Check the schema of the file; PluginError if it is not a schema."""
        if self._schema and (problem := _problem(self._schema)):
            raise PluginError(f"{self.options.file} is not a JSON Schema: {problem}")

    def check(self, columns: Mapping[str, Any]) -> str | None:
        """Return why the row's schema cannot be used."""
        if self._schema:
            return None
        if columns.get(self.options.column) is None:
            return f"it has no column {self.options.column}, which must contain the schema; or set file = … in the options"
        problem = _problem(self._text(columns))
        return f"{self.options.column} is not a JSON Schema: {problem}" if problem else None

    def score(self, item: RewardInput) -> Score:
        """Return a verdict; a reference that the schema cannot resolve is outcome ``error``."""
        spoken = self._extract.find(item.text)
        if spoken.answer is None:
            return self._malformed(spoken.reason)
        if len(spoken.answer) > self.options.max_chars:
            return self._malformed(f"limit: the text has {len(spoken.answer)} characters, more than {self.options.max_chars}")
        for text in self._candidates(spoken.answer):
            try:
                value = json.loads(text, parse_constant=_refused, object_pairs_hook=_once)
            except (ValueError, RecursionError):
                continue
            return self._verdict(value, text, self._text(item.columns))
        return self._malformed("no JSON")

    def _candidates(self, text: str) -> list[str]:
        whole = [text] if self.options.where != "fenced" else []
        if self.options.where == "text":
            return whole
        fences = list(_FENCE.finditer(text))
        if len(fences) < 2 or fences[-1].group(1) or fences[-2].group(1).lower() not in ("", "json"):
            return whole
        return [*whole, text[fences[-2].end() : fences[-1].start()]]

    def _verdict(self, value: Any, text: str, schema: str) -> Score:
        try:
            error = best_match(_validator(schema).iter_errors(value))
        except RecursionError:
            return Score(value=0.0, accuracy=0.0, format_ok=True, outcome=Outcome.WRONG, reason="limit: nested too deeply", parsed=text)
        except Unresolvable as missing:
            raise ValueError(f"the schema refers to {missing.ref}, which is not in it") from missing
        if error is None:
            return Score(value=self.options.correct_score, accuracy=1.0, format_ok=True, parsed=text)
        return Score(value=0.0, accuracy=0.0, format_ok=True, outcome=Outcome.WRONG, reason=_said(error), parsed=text)

    def _malformed(self, reason: str) -> Score:
        return Score(value=0.0, accuracy=0.0, format_ok=False, outcome=Outcome.MALFORMED, reason=reason)

    def _text(self, columns: Mapping[str, Any]) -> str:
        schema = self._schema or columns[self.options.column]
        return schema if isinstance(schema, str) else json.dumps(schema, sort_keys=True)


def _said(error: ValidationError) -> str:
    where = "".join(f"[{part!r}]" for part in error.absolute_path)
    return f"{where or 'the value'}: {error.message}"[:300]


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key occurs twice")
    return made


def _problem(text: str) -> str:
    """Return half a sentence if the text is not a JSON Schema."""
    try:
        schema = json.loads(text)
        if not isinstance(schema, dict | bool):
            return f"it is a {type(schema).__name__}, not an object"
        validator_for(schema).check_schema(schema)
    except (ValueError, SchemaError) as error:
        return str(error).partition("\n")[0]
    return ""


@lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    schema = json.loads(text)
    return validator_for(schema)(schema, registry=Registry())
