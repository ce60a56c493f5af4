"""Training by ColossalAI. This module only says so; colossalai is imported when the backend is made."""

from __future__ import annotations

rlcore_api = "1.0"
