"""What inference backends can do, as a table of Markdown: one row a capability, one column a backend, from what their specs declare."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from rlcore.contracts.specs import InferenceBackendSpec, InferenceCapabilities

__all__ = ["capability_table"]

WORDS = {
    "in_flight": "what becomes of running requests when the weights change",
    "sleeps": "gives its device back and takes it again",
    "sleeps_on": "of the devices those that it gives back, if not all",
    "scores": "answers the probe",
    "counter_noise": "a draw depends on its noise alone, whatever else is in the batch",
    "continues": "goes on from the tokens of an aborted request",
    "layouts": "what it can be spread over",
    "dtypes": "what it computes in",
    "devices": "where it computes",
    "transfers": "ways by which it takes weights",
    "kinds": "what a version of the weights may consist of",
    "sampling": "what it understands of a request beyond temperature, top-p, top-k, length and stop strings",
    "details": "what it tells of each token",
    "implementation": "whose forward pass it is",
    "reproducible": "what two runs have in common, on the CPU",
}
"""A line for each field of ``InferenceCapabilities``."""


def capability_table(specs: Iterable[InferenceBackendSpec]) -> str:
    """The table, in the order of the names; KeyError for a capability that has no line here."""
    columns = {spec.name: spec.capabilities for spec in sorted(specs, key=lambda spec: spec.name)}
    lines = [_row(["capability", *(f"`{name}`" for name in columns)]), _row(["---"] * (len(columns) + 1))]
    for field in fields(InferenceCapabilities):
        cells = [_cell(getattr(record, field.name, None)) for record in columns.values()]
        lines.append(_row([f"`{field.name}`: {WORDS[field.name]}", *cells]))
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, frozenset):
        return ", ".join(f"`{one}`" for one in sorted(value)) or "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not declared" if value is None else f"`{value}`"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
