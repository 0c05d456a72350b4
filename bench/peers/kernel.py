# SPDX-License-Identifier: Apache-2.0
"""The kernel through its C interface (c_abi.cpp), and memory that every optimizer can share."""
import ctypes
import mmap

FORMATS = {"f16": 0, "bf16": 1, "f32": 2}
HUGE_PAGE = 2 << 20
MADV_COLLAPSE = 25  # Linux 6.1; not yet in the mmap module
# Tensors start this much further into their mappings than those before. Streams whose addresses
# agree in bits 6 to 27 fight for one place of a Zen core's cache: 0.49 against 0.38 ns for each
# element of three streams in turns, 0.48 against 0.22 in a quieter minute.
STAGGER = 4096 + 256


class AdamWCall(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p)
                for name in ("param", "exp_avg", "exp_avg_sq", "grad", "weight")]
    _fields_ += [("elems", ctypes.c_uint64),
                 ("grad_format", ctypes.c_int32), ("weight_format", ctypes.c_int32)]
    _fields_ += [(name, ctypes.c_double)
                 for name in ("lr", "beta1", "beta2", "eps", "weight_decay")]
    _fields_ += [("step", ctypes.c_uint64)]


class Kernel:
    """Threads and kernels of Outboard in this process. Tensors are torch's, contiguous."""

    def __init__(self, library, threads):
        self._calls = ctypes.CDLL(str(library))
        self._calls.peers_open.restype = ctypes.c_void_p
        self._calls.peers_error.restype = ctypes.c_char_p
        self._calls.peers_isa.restype = ctypes.c_char_p
        self._handle = self._calls.peers_open(ctypes.c_uint32(threads))
        if not self._handle:
            raise RuntimeError(self._calls.peers_error().decode())

    def close(self):
        self._calls.peers_close(ctypes.c_void_p(self._handle))
        self._handle = None

    def isa(self):
        return self._calls.peers_isa().decode()

    def adamw(self, state, grad, weight, settings, step):
        """One step. `state`: FP32 tensors p, m, v; `grad`, `weight`: (tensor, format)."""
        param, exp_avg, exp_avg_sq = (tensor.data_ptr() for tensor in state)
        call = AdamWCall(param, exp_avg, exp_avg_sq, grad[0].data_ptr(), weight[0].data_ptr(),
                         state[0].numel(), FORMATS[grad[1]], FORMATS[weight[1]],
                         settings["lr"], *settings["betas"], settings["eps"],
                         settings["weight_decay"], step)
        self._calls.peers_adamw(ctypes.c_void_p(self._handle), ctypes.byref(call))

    def roof(self, state):
        """Reads and writes the three FP32 tensors; changes nothing."""
        self._calls.peers_roof(ctypes.c_void_p(self._handle),
                               *(ctypes.c_void_p(tensor.data_ptr()) for tensor in state),
                               ctypes.c_uint64(state[0].numel()))


def huge_tensor(torch, elems, dtype, place=0):
    """A zeroed tensor, in huge pages where the system has them. Tensors that one step touches get
    different `place`s, from 0 on."""
    size = elems * torch.empty(0, dtype=dtype).element_size()
    mapping = mmap.mmap(-1, size + HUGE_PAGE + place * STAGGER,
                        flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapping.madvise(mmap.MADV_HUGEPAGE)
    start = -torch.frombuffer(mapping, dtype=torch.uint8).data_ptr() % HUGE_PAGE + place * STAGGER
    tensor = torch.frombuffer(mapping, dtype=dtype, count=elems, offset=start).zero_()
    try:
        # Where memory was too fragmented for huge pages at the first touch.
        mapping.madvise(MADV_COLLAPSE)
    except OSError:
        pass  # huge_share() tells
    return tensor


def huge_share():
    """Of this process's resident memory in mappings over 64 MiB, the part in huge pages."""
    resident = huge = current = 0
    for line in open("/proc/self/smaps", encoding="utf-8"):
        if line.startswith("Rss:"):
            current = int(line.split()[1])
            resident += current if current > 65536 else 0
        elif line.startswith("AnonHugePages:") and current > 65536:
            huge += int(line.split()[1])
    return huge / resident if resident else 0.0
