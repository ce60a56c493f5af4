"""The answer in a model's text, for every reward that reads text: only after ``</think>``, and in the format that the data set asks for.

A reward puts ``Extraction`` into its options and judges the result of ``find``; users then choose with ``extract = { by = "hashes" }``.

>>> from pydantic import BaseModel, Field
>>> class MyOptions(BaseModel):
...     extract: Extraction = Field(default=Extraction(by=("boxed", "last_number")), description="how the answer is marked")
>>> found = MyOptions().extract.find("<think>5?</think> It is 6.")
>>> found.answer, found.reason
('6', '')
"""

from __future__ import annotations

from rlcore_plugin_extraction.extraction import Extraction, ExtractionWay, Found, after_thinking, last_answer, last_boxed

__all__ = ["Extraction", "ExtractionWay", "Found", "after_thinking", "last_answer", "last_boxed"]
