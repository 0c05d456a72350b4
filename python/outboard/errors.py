# SPDX-License-Identifier: Apache-2.0
"""What the engine throws, one class for each kind; each text says what, which, how much, what to do."""


class Error(RuntimeError):
    """The base of all. `code` is the kind's name."""

    code = "error"


class InvalidArgument(Error, ValueError):
    code = "invalid_argument"


class InvalidConfig(Error, ValueError):
    code = "invalid_config"


class ProtocolError(Error):
    code = "protocol_error"


class Unsupported(Error, NotImplementedError):
    code = "unsupported"


class OutOfMemory(Error, MemoryError):
    code = "out_of_memory"


class DeviceFailure(Error):
    code = "device_failure"


class Deadlock(Error):
    code = "deadlock"


class Poisoned(Error):
    code = "poisoned"


class Numerics(Error):
    code = "numerics"


class Timeout(Error):
    code = "timeout"


class IoFailure(Error):
    code = "io_failure"


class NoSpace(Error):
    code = "no_space"


class BadCheckpoint(Error):
    code = "bad_checkpoint"


_KINDS = {kind.code: kind for kind in Error.__subclasses__()}


def of_code(code):
    """The class of a kind, for the native module."""
    return _KINDS.get(code, Error)
