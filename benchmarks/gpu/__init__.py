"""`make gpu`: first light on a CUDA GPU. Parts that run one after another, each in a process of its own, each a line in a results file.

Three layers, so that a machine without network, without an installer's rights and without git is enough: ``__main__``, ``runner``,
``packages`` and what they import need the standard library only; ``child`` runs one part with torch, transformers and rlcore; ``wheels``
runs beforehand on a machine with a network.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - a GPU machine has the Python that it has, and an import would break off with a traceback
    version = ".".join(map(str, sys.version_info[:3]))
    print(
        f"make gpu: {sys.executable} is Python {version}, and rlcore needs Python 3.11 or newer; type PYTHON=/path/to/it", file=sys.stderr
    )
    raise SystemExit(2)
