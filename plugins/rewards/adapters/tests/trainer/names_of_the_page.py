"""Names on docs/coming_from/trl.md that TRL does not have: ``python names_of_the_page.py PAGE``, in an environment of TRL's.

The first column of its tables may name fields of GRPOConfig and arguments of GRPOTrainer. The last line is a JSON list of all others.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
from pathlib import Path

from trl import GRPOConfig, GRPOTrainer

known = {field.name for field in dataclasses.fields(GRPOConfig)} | set(inspect.signature(GRPOTrainer.__init__).parameters)
tables = re.findall(r"^\| TRL \| rlcore \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", Path(sys.argv[1]).read_text(encoding="utf-8"), re.MULTILINE)
spans = [span for table in tables for row in table.splitlines() for span in re.findall(r"`([^`]+)`", row.split("|")[1])]
named = {match[0] for match in map(re.compile(r"[a-z]\w*").match, spans) if match}
print(json.dumps(sorted(named - known)))
