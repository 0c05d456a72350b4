# SPDX-License-Identifier: Apache-2.0
"""The log of everything that was written to some disks, and how it is read back.

A record is a header, then the bytes of a write:
  kind    WRITE, FLUSH or MARK
  disk    its number
  where   WRITE: byte offset. FLUSH: how many writes of the disk it makes durable, from the first
          on: those that had been answered when it was asked for. MARK: nothing
  length  bytes that follow
"""
import struct
from collections import namedtuple

WRITE, FLUSH, MARK = 0, 1, 2
HEADER = struct.Struct("<BBQI")

Record = namedtuple("Record", "kind disk where data_at length")


def append(file, kind, disk, where, data=b""):
    file.write(HEADER.pack(kind, disk, where, len(data)))
    file.write(data)


def records(file):
    """All records in order. `data_at` is where a record's bytes lie in the file."""
    file.seek(0)
    while header := file.read(HEADER.size):
        kind, disk, where, length = HEADER.unpack(header)
        at = file.tell()
        yield Record(kind, disk, where, at, length)
        file.seek(at + length)


def data_of(file, record):
    file.seek(record.data_at)
    return file.read(record.length)
