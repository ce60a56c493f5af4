"""Text of strangers for a terminal: a model may have written escape sequences, and a terminal obeys them."""

from __future__ import annotations

__all__ = ["escape_control"]

_TAB = "    "


def escape_control(text: str, *, lines: bool = False) -> str:
    r"""The text with everything that a terminal could obey, or that nobody could see, written out: ``\x1b``, ``\u202e``.

    Control characters (C0, DEL, C1), marks of direction, lone surrogates and what Unicode has not assigned. ``lines``: line feeds stay,
    else they are written out too.
    """
    return "".join(_shown(character, lines) for character in text)


def _shown(character: str, lines: bool) -> str:
    if character.isprintable():
        return character
    if character == "\n":
        return "\n" if lines else "\\n"
    if character == "\t":
        return _TAB
    if character in "\u00a0\u202f\u3000":  # spaces, which str.isprintable counts among the others
        return " "
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
