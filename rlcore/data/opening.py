"""Opens a data file by its content: gzip is unpacked, what no reader of text can read is named."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, cast

from rlcore.contracts.errors import DataError

__all__ = ["opened"]

_GZIP = b"\x1f\x8b"
_UNREADABLE = {
    b"PAR1": "is Parquet; let its name end in .parquet",
    b"PK\x03\x04": "is a zip archive; unpack it and name what was in it",
    b"\x28\xb5\x2f\xfd": "is packed with zstd; unpack it (zstd -d), or pack it with gzip",
    b"\xfd7zXZ": "is packed with xz; unpack it (xz -d), or pack it with gzip",
    b"BZh": "is packed with bzip2; unpack it (bzip2 -d), or pack it with gzip",
}


@contextmanager
def opened(path: Path, name: str) -> Iterator[BinaryIO]:
    """The bytes of a text file, unpacked if they are gzip, whatever its name says. DataError, while it is read too, for what cannot be
    read; ``name`` is how the user typed it."""
    if not path.is_file():
        raise DataError(f"{name}: is no regular file; write the rows to a file and name that")
    try:
        with path.open("rb") as file:
            start = file.read(8)
            file.seek(0)
            for magic, said in _UNREADABLE.items():
                if start.startswith(magic):
                    raise DataError(f"{name}: the file {said}")
            with gzip.open(file) if start.startswith(_GZIP) else nullcontext(file) as stream:
                yield cast(BinaryIO, stream)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name}: the gzip file is damaged or cut short ({error}); copy it again") from error
    except OSError as error:
        raise DataError(f"{name}: the data file cannot be read ({error.strerror or error}); check its name and permissions") from error
