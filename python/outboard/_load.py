# SPDX-License-Identifier: Apache-2.0
"""Finds the native module, and says what is wrong where it is not there."""
import importlib
import pathlib
import sysconfig


def native():
    """The native module. Raises ImportError naming the file that was looked for."""
    try:
        return importlib.import_module("outboard._native")
    except ImportError as cause:
        folder = pathlib.Path(__file__).parent
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        raise ImportError(
            f"outboard: its native module cannot be loaded: {cause}. Looked for "
            f"{folder / ('_native' + suffix)} or {folder / '_native.abi3.so'}; install the package "
            "for this Python (pip install ./python in a clone). There is no slower fallback.",
            name="outboard._native") from cause


def choice(kind, name, what):
    """The member `name` of one of the native module's enumerations."""
    enumeration = getattr(native(), kind)
    member = getattr(enumeration, str(name), None)
    if not isinstance(member, enumeration):
        from .errors import InvalidConfig

        known = ", ".join(repr(one.name) for one in enumeration)
        raise InvalidConfig(f"{what} is {name!r}; there are {known}")
    return member
