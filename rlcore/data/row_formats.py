"""Convert a published row to a row of rlcore: ``[data.columns]`` renames columns, then a plugin's row format converts the row.

This module does not know about files. A row that already is a row of rlcore passes unchanged. The format of a data set is decided by its
first row that is a row of rlcore or that a format recognises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlcore.config.run_config import DataSection
from rlcore.contracts.errors import DataError, RlcoreError
from rlcore.contracts.row_interfaces import RowFormat
from rlcore.contracts.specs import PluginKind
from rlcore.data.json_texts import number_text, opened_text, place_in
from rlcore.data.likely_columns import columns_advice
from rlcore.data.row_sense import why_invalid
from rlcore.data.rows import BadRow, kind_of, listed
from rlcore.registry.error_context import closest
from rlcore.registry.install import install_line
from rlcore.registry.known_plugins import distribution_of, known_names
from rlcore.registry.plugin_registry import Registry

__all__ = ["RowConversion", "converted", "is_raw"]


@dataclass(slots=True, kw_only=True)
class RowConversion:
    """Converts the rows of the data set ``path`` to rows of rlcore.

    ``beside`` names columns that do not belong to the data row, such as a completion to score; formats do not see them. ``say`` receives
    the detected format once."""

    path: str
    registry: Registry
    data: DataSection
    beside: Sequence[str] = ()
    say: Callable[[str], None] = lambda line: None
    _chosen: tuple[str, RowFormat] | None = field(default=None, init=False)
    _asked: bool = field(default=False, init=False)
    _made: dict[str, RowFormat] = field(default_factory=dict, init=False)

    def row(self, raw: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """Return the row of rlcore. Raises BadRow if it cannot be converted, and DataError if no row of the data set can."""
        if self._asked and self._chosen is None and not self.data.columns:
            return raw
        mapped, absent = _mapped(raw, self.data.columns)
        apart = {key: value for key, value in {**raw, **mapped}.items() if key in self.beside}
        whole = {key: value for key, value in {**raw, **mapped}.items() if key not in apart}
        if not self._asked:
            if "messages" in absent and raw.get("messages") is None:
                raise self._lost("messages", absent, whole)
            self._choose(whole)
        converted = whole if self._chosen is None else {**self._converted(whole, *self._chosen), **mapped, **apart}
        converted = {**converted, **apart}
        if lost := next((target for target in absent if converted.get(target) is None), ""):
            raise self._lost(lost, absent, whole)
        return converted

    def _lost(self, target: str, absent: Mapping[str, str], row: Mapping[Any, Any]) -> BadRow:
        near = closest(absent[target], [name for name in row if isinstance(name, str)])
        told = f'which [data.columns] names for "{target}" (it has {listed(row) or "nothing"})'
        return BadRow(f'the row has no "{absent[target]}", {told}{near}; fix [data.columns] or --columns')

    def _choose(self, first: Mapping[Any, Any]) -> None:
        named = self.data.format
        if named == "none" or (named == "auto" and not is_raw(first)):
            self._asked = True
            return
        if named != "auto":
            self._asked, self._chosen = True, (named, self.registry.make(PluginKind.FORMAT, named))
            return
        if not self._made:
            self._made = {spec.name: self.registry.make(PluginKind.FORMAT, spec.name) for spec in self.registry.specs(PluginKind.FORMAT)}
        made = self._made
        found = [name for name, format in made.items() if self._recognised(first, name, format)]
        if len(found) > 1:
            raise DataError(
                f"{self.path}: the row formats {' and '.join(found)} all recognise its rows; name one of them: --data-format {found[0]}"
            )
        if found:
            self._asked, self._chosen = True, (found[0], made[found[0]])
            owner = self.registry.owner(PluginKind.FORMAT, found[0])
            self.say(f"{self.path}: read by the row format {found[0]} of {owner}; --data-format none takes rows as they are")
        elif first.get("messages") is None:  # a broken row says nothing about the rows after it
            has = listed(first) or "nothing"
            raise BadRow(f'the row has no "messages" (it has {has}), and {_none_knows(made)}; {_advice(first)}')
        else:
            self._asked = True

    def _recognised(self, row: Mapping[Any, Any], name: str, format: RowFormat) -> bool:
        try:
            return bool(format.recognises(row))
        except (Exception, SystemExit) as error:  # raised by a plugin
            raise DataError(self._broken(name, error)) from error

    def _converted(self, row: Mapping[Any, Any], name: str, format: RowFormat) -> Mapping[Any, Any]:
        try:
            made: object = format.convert(row)
        except (BadRow, RlcoreError):
            raise
        except (Exception, SystemExit) as error:  # raised by a plugin: for a row that it cannot convert, it should raise BadRow
            raise DataError(self._broken(name, error)) from error
        if not isinstance(made, Mapping):
            raise DataError(f"{self.path}: {self._label(name)} turned a row into {kind_of(made)}, not a mapping; fix the plugin")
        if (invalid := why_invalid(row)) and not why_invalid(made):  # the format leaves the column out
            raise BadRow(invalid)
        return made

    def _label(self, name: str) -> str:
        return f"the row format {name} of {self.registry.owner(PluginKind.FORMAT, name)}"

    def _broken(self, name: str, error: BaseException) -> str:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return f"{self.path}: {self._label(name)} failed ({said}); fix the plugin, or name another --data-format"


def _advice(row: Mapping[Any, Any]) -> str:
    """Return what to type or to add, for a row that no format recognises."""
    typed = columns_advice(row, "messages", "gt_answer") or columns_advice(row, "messages")
    return typed or 'add {"role": "user", "content": "…"} or a list of these, or name columns: [data.columns] messages = "…"'


def converted(rows: Iterable[tuple[int, object]], conversion: RowConversion) -> Iterator[tuple[int, object]]:
    """Yield (number, row of rlcore or the reason why there is none) for each row."""
    for number, row in rows:
        if not isinstance(row, Mapping):
            yield number, row
            continue
        try:
            made: object = conversion.row(row)
        except BadRow as bad:
            made = bad
        yield number, made


def is_raw(row: Mapping[Any, Any]) -> bool:
    """Return whether a row is not a row of rlcore: it has no messages, or they end with an assistant's answer."""
    messages = row.get("messages")
    last = messages[-1] if isinstance(messages, list | tuple) and messages else messages
    return messages is None or (isinstance(last, Mapping) and last.get("role") == "assistant")


def _mapped(row: Mapping[Any, Any], columns: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the columns that ``[data.columns]`` names, by their new names; and new name -> path of those that the row lacks."""
    mapped: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for target, path in columns.items():
        there, value = place_in(row, path)
        if there:
            mapped[target] = _fitted(target, value)
        else:
            absent[target] = path
    return {target: value for target, value in mapped.items() if value is not None}, absent


def _fitted(target: str, value: Any) -> Any:
    """Adapt a value that a user cannot change in another author's data set: a prompt that is text, or the JSON text of a chat, or a gold
    answer that is a number."""
    if target == "messages" and isinstance(value, str):
        chat = opened_text(value)
        is_chat = isinstance(chat, list) and bool(chat) and all(isinstance(turn, Mapping) and "role" in turn for turn in chat)
        return chat if is_chat else {"role": "user", "content": value}
    if target == "gt_answer" and isinstance(value, int | float) and not isinstance(value, bool):
        return number_text(value)
    return value


def _none_knows(made: Mapping[str, RowFormat]) -> str:
    known = (
        f"no installed row format knows it ({len(made)} were tried, rlcore plugins lists them)" if made else "no row format is installed"
    )
    owners = {distribution_of(PluginKind.FORMAT, name) for name in known_names(PluginKind.FORMAT) if name not in made}
    lines = [install_line(owner) for owner in sorted(filter(None, owners))]
    return known + (f" (to install some: {' and '.join(lines)})" if lines else "")
