# SPDX-License-Identifier: Apache-2.0
"""What an installed package brings along, and what it leaves to the system."""
import pathlib
import re

import pytest

import outboard


def test_brings_what_machines_lack_and_nothing_of_the_c_library():
    libraries = pathlib.Path(outboard.__file__).parent / "lib"
    if not libraries.is_dir():
        pytest.skip("not installed from a wheel")
    names = {re.split(r"[.]so", file.name)[0] for file in libraries.iterdir()}
    assert names >= {"libhwloc", "libtbb", "libhwy"}
    assert names <= {"libhwloc", "libtbb", "libhwy", "libudev"}
