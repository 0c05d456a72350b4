#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves disks over NBD on a unix socket and logs what is written to them.

usage: serve_disks.py SOCKET LOG NAME=IMAGE... MARKS

Each disk has a volatile write cache: what is written is durable when a flush says so that was asked
for after the write had been answered. The last disk is of 1 MiB and keeps nothing: a write to it is a
mark in the log. One log has all disks in the order in which the requests came. Ends with SIGTERM.
"""
import os
import selectors
import signal
import socket
import struct
import sys

import block_log

MARKS_BYTES = 1 << 20
OPTION_MAGIC = 0x49484156454F5054
REPLY_MAGIC = 0x3E889045565A9
OPT_EXPORT_NAME, OPT_ABORT, OPT_INFO, OPT_GO = 1, 2, 6, 7
REP_ACK, REP_INFO, REP_UNSUPPORTED, REP_UNKNOWN = 1, 3, (1 << 31) + 1, (1 << 31) + 6
HAS_FLAGS, SEND_FLUSH = 1, 4
CMD_READ, CMD_WRITE, CMD_DISCONNECT, CMD_FLUSH = 0, 1, 2, 3
REQUEST = struct.Struct(">IHHQQI")
EINVAL = 22


class Disk:
    def __init__(self, number, size, image, log):
        self.number, self.size, self.image, self.log = number, size, image, log
        self.answered = 0  # writes

    def handle(self, requests):
        """Answers what has come at one time. A flush among it covers only what came before."""
        answers, writes = [], 0
        for kind, handle, offset, length, data in requests:
            error, found = 0, b""
            if offset + length > self.size or kind not in (CMD_READ, CMD_WRITE, CMD_FLUSH):
                error = EINVAL
            elif kind == CMD_READ:
                found = os.pread(self.image, length, offset) if self.image is not None else bytes(length)
            elif kind == CMD_FLUSH and self.image is None:
                pass
            elif kind == CMD_FLUSH:
                block_log.append(self.log, block_log.FLUSH, self.number, self.answered)
            elif self.image is None:
                block_log.append(self.log, block_log.MARK, self.number, 0, data)
            else:
                os.pwrite(self.image, data, offset)
                block_log.append(self.log, block_log.WRITE, self.number, offset, data)
                writes += 1
            answers.append(struct.pack(">IIQ", 0x67446698, error, handle) + found)
        self.answered += writes
        return b"".join(answers)


class Connection:
    """One client: the handshake, then requests."""

    def __init__(self, link, disks):
        self.link, self.disks, self.disk = link, disks, None
        self.greeted = False
        self.buffer = bytearray()
        link.sendall(b"NBDMAGIC" + struct.pack(">QH", OPTION_MAGIC, 3))

    def receive(self):
        """False: the client has gone."""
        data = self.link.recv(1 << 22)
        self.buffer += data
        if not data:
            return False
        while self.disk is None:
            if not self.negotiate():
                return True
        return self.serve()

    def take(self, count):
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    def negotiate(self):
        """One step of it. False: more has to come first."""
        if not self.greeted:
            if len(self.buffer) < 4:
                return False
            self.take(4)
            self.greeted = True
        if len(self.buffer) < 16:
            return False
        _, option, length = struct.unpack_from(">QII", self.buffer)
        if len(self.buffer) < 16 + length:
            return False
        self.take(16)
        data = self.take(length)
        if option in (OPT_GO, OPT_INFO):
            self.describe(option, data)
        elif option == OPT_EXPORT_NAME:
            self.disk = self.disks[data.decode()]
            self.link.sendall(struct.pack(">QH", self.disk.size, HAS_FLAGS | SEND_FLUSH))
        elif option == OPT_ABORT:
            self.reply(option, REP_ACK)
        else:
            self.reply(option, REP_UNSUPPORTED)
        return True

    def describe(self, option, data):
        (length,) = struct.unpack_from(">I", data)
        disk = self.disks.get(data[4 : 4 + length].decode())
        if disk is None:
            self.reply(option, REP_UNKNOWN)
            return
        info = struct.pack(">HQH", 0, disk.size, HAS_FLAGS | SEND_FLUSH)
        self.reply(option, REP_INFO, info)
        self.reply(option, REP_ACK)
        if option == OPT_GO:
            self.disk = disk

    def reply(self, option, kind, data=b""):
        self.link.sendall(struct.pack(">QIII", REPLY_MAGIC, option, kind, len(data)) + data)

    def serve(self):
        requests = []
        while len(self.buffer) >= REQUEST.size:
            _, _, kind, handle, offset, length = REQUEST.unpack_from(self.buffer)
            if kind == CMD_DISCONNECT:
                return False
            size = REQUEST.size + (length if kind == CMD_WRITE else 0)
            if len(self.buffer) < size:
                break
            requests.append((kind, handle, offset, length, self.take(size)[REQUEST.size :]))
        if requests:
            self.link.sendall(self.disk.handle(requests))
        return True


def serve(listener, disks):
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                link, _ = listener.accept()
                selector.register(link, selectors.EVENT_READ, Connection(link, disks))
            elif not key.data.receive():
                selector.unregister(key.fileobj)
                key.fileobj.close()


def main(arguments):
    path, log_path, *images, marks = arguments
    with open(log_path, "wb") as log:
        disks = {}
        for number, argument in enumerate(images):
            name, image = argument.split("=", 1)
            handle = os.open(image, os.O_RDWR)
            disks[name] = Disk(number, os.fstat(handle).st_size, handle, log)
        disks[marks] = Disk(len(images), MARKS_BYTES, None, log)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        serve(listener, disks)


if __name__ == "__main__":
    main(sys.argv[1:])
