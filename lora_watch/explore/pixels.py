"""Pictures of pixels: a browser draws one at once where it would draw a hundred thousand cells one by one."""

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int, int]
"""Red, green, blue and how opaque, 0 to 255 each."""
SIGNATURE = b"\x89PNG\r\n\x1a\n"
_INDEXED = struct.pack(">BBBBB", 8, 3, 0, 0, 0)
"""A byte a pixel, which is a colour's number in the palette; not interlaced."""


def png(pixels: NDArray[np.uint8], palette: Sequence[Colour]) -> bytes:
    """
    A PNG of ``pixels``, rows from above of the numbers of colours in ``palette`` (256 at most).

    A row that is like the one above takes next to nothing. ValueError where a pixel has no colour.
    """
    height, width = pixels.shape
    if not 0 < len(palette) <= 256 or (pixels.size and int(pixels.max()) >= len(palette)):
        raise ValueError(f"{len(palette)} colours are not those of these pixels")
    rows = np.zeros((height, width + 1), dtype=np.uint8)
    rows[:, 1:] = pixels
    again = np.flatnonzero((pixels[1:] == pixels[:-1]).all(axis=1)) + 1
    rows[again] = 0
    rows[again, 0] = 2  # the difference to the row above
    shades = np.array(palette, dtype=np.uint8).reshape(len(palette), 4)
    parts = (
        (b"IHDR", struct.pack(">II", width, height) + _INDEXED),
        (b"PLTE", shades[:, :3].tobytes()),
        (b"tRNS", shades[:, 3].tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 6)),
        (b"IEND", b""),
    )
    return SIGNATURE + b"".join(_chunk(kind, inside) for kind, inside in parts)


def data_url(picture: bytes) -> str:
    """
    A PNG as an address that holds it.

    >>> data_url(SIGNATURE)
    'data:image/png;base64,iVBORw0KGgo='
    """
    return f"data:image/png;base64,{base64.b64encode(picture).decode('ascii')}"


def opaque(colour: str) -> Colour:
    """
    A colour as its hexadecimal digits have it.

    >>> opaque("#ff8000")
    (255, 128, 0, 255)
    """
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue, 255


def _chunk(kind: bytes, inside: bytes) -> bytes:
    return struct.pack(">I", len(inside)) + kind + inside + struct.pack(">I", zlib.crc32(kind + inside))
