#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the novels of R's janeaustenr package as plain text files.

The package keeps each novel as a character vector, one string a line, in R's lazy-load file:
records of [length of the text, big-endian u32][zlib stream of an XDR serialization]. Only what
such a vector needs is read: each CHARSXP is [flags u32, low byte 9][length i32][bytes].
"""
import pathlib
import struct
import sys
import zlib

CHARSXP = 9
STRSXP = 16


def records(data):
    """Yields the inflated records of a lazy-load file."""
    at = 0
    while at + 4 < len(data):
        inflate = zlib.decompressobj()
        record = inflate.decompress(data[at + 4:])
        if struct.unpack_from(">I", data, at)[0] != len(record):
            raise ValueError(f"record at {at}: length does not match")
        yield record
        at = len(data) - len(inflate.unused_data)


def lines(record):
    """The strings of a serialized character vector."""
    if record[:2] != b"X\n":
        raise ValueError("not an XDR serialization")
    version = struct.unpack_from(">i", record, 2)[0]
    at = 14
    if version >= 3:  # a name of the native encoding follows the three version words
        at += 4 + struct.unpack_from(">i", record, at)[0]
    flags, count = struct.unpack_from(">Ii", record, at)
    if flags & 0xFF != STRSXP:
        raise ValueError("not a character vector")
    at += 8
    for _ in range(count):
        flags, size = struct.unpack_from(">Ii", record, at)
        if flags & 0xFF != CHARSXP:
            raise ValueError(f"no string at {at}")
        at += 8
        yield record[at:at + max(size, 0)]
        at += max(size, 0)


def main(source, target):
    folder = pathlib.Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    for record in records(pathlib.Path(source).read_bytes()):
        text = list(lines(record))
        title = text[0].decode().strip().lower().replace(" ", "_")
        (folder / f"{title}.txt").write_bytes(b"\n".join(text) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
