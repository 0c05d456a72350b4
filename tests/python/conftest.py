# SPDX-License-Identifier: Apache-2.0
"""Settings of all tests: two threads, so that several run beside each other."""
import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
