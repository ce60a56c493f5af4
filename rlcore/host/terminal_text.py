"""Third-party text for a terminal: a model may have written escape sequences, which a terminal would execute."""

from __future__ import annotations

__all__ = ["escape_control"]

_TAB = "    "


def escape_control(text: str, *, lines: bool = False) -> str:
    r"""Return the text with every invisible or terminal-control character written out: ``\x1b``, ``\u202e``.

    These are control characters (C0, DEL, C1), marks of direction, lone surrogates, and characters that Unicode has not assigned.

    :param lines: keep line feeds instead of writing them out.
    """
    return "".join(_shown(character, lines) for character in text)


def _shown(character: str, lines: bool) -> str:
    if character.isprintable():
        return character
    if character == "\n":
        return "\n" if lines else "\\n"
    if character == "\t":
        return _TAB
    if character in "\u00a0\u202f\u3000":  # spaces that str.isprintable counts as not printable
        return " "
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
