# SPDX-License-Identifier: Apache-2.0
"""outboard.Engine on NumPy arrays."""
import gc
import os
import resource
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import outboard


def adamw_reference(p, m, v, g, t, *, lr, beta1=0.9, beta2=0.999, eps=1e-8, wd=0.0):
    """One step in the contract's order, all in float32 from scalars made in double."""
    f = np.float32
    m = f(beta1) * m + f(1 - beta1) * g
    v = f(beta2) * v + (f(1 - beta2) * g) * g
    d = np.sqrt(v) * f(1 / np.sqrt(1 - beta2**t)) + f(eps)
    u = f(lr * wd) * p + f(lr / (1 - beta1**t)) * (m / d)
    return p - u, m, v


def gradients(seed, shape, dtype):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_masters_have_the_bits_of_the_contracts_order(dtype):
    shape = (37, 301)
    weight = gradients(1, shape, dtype)
    p = weight.astype(np.float32)
    m, v = np.zeros_like(p), np.zeros_like(p)
    with outboard.Engine() as engine:
        engine.add_group(outboard.AdamW(lr=1e-2, weight_decay=0.1))
        parameter = engine.add_parameter("w", weight)
        engine.commit()
        for t in range(1, 6):
            g = gradients(10 + t, shape, dtype)
            engine.gradient_ready(parameter, g)
            assert engine.step().applied
            p, m, v = adamw_reference(p, m, v, g.astype(np.float32), t, lr=1e-2, wd=0.1)
            np.testing.assert_array_equal(engine.read_state(parameter, "master"), p)
            np.testing.assert_array_equal(engine.read_state(parameter, "exp_avg"), m)
            np.testing.assert_array_equal(engine.read_state(parameter, "exp_avg_sq"), v)
            np.testing.assert_array_equal(weight, p.astype(dtype))


def test_uint16_is_bf16_where_it_is_said_to_be():
    bits = gradients(1, 500, ml_dtypes.bfloat16)
    twin = bits.copy().view(np.uint16)
    results = []
    for weight, dtype in ((bits, None), (twin, "bf16")):
        with outboard.Engine() as engine:
            engine.add_group(outboard.Lion(lr=1e-2))
            parameter = engine.add_parameter("w", weight, dtype=dtype)
            engine.commit()
            engine.gradient_ready(parameter, gradients(2, 500, ml_dtypes.bfloat16))
            engine.step()
            results.append(engine.state_digest())
    assert results[0] == results[1]
    np.testing.assert_array_equal(bits.view(np.uint16), twin)


def test_an_array_in_fortran_order_is_its_elements_in_memory_order():
    weight = np.asfortranarray(gradients(1, (30, 50), np.float32))
    plain = np.ascontiguousarray(weight)
    for array in (weight, plain):
        with outboard.Engine() as engine:
            engine.add_group(outboard.AdamW(lr=1e-2))
            parameter = engine.add_parameter("w", array)
            engine.commit()
            g = gradients(2, (30, 50), np.float32)
            engine.gradient_ready(parameter, np.asfortranarray(g) if array is weight else g)
            engine.step()
            np.testing.assert_array_equal(engine.read_state(parameter), array)
    np.testing.assert_array_equal(weight, plain)


def one_weight(**settings):
    engine = outboard.Engine(**settings)
    engine.add_group(outboard.AdamW(lr=1e-2))
    weight = gradients(1, 5000, np.float32)
    parameter = engine.add_parameter("w", weight)
    engine.commit()
    return engine, parameter, weight


def test_checkpoints_and_state_go_on_with_the_same_bits(tmp_path):
    a, pa, wa = one_weight()
    for i in range(3):
        a.gradient_ready(pa, gradients(i, 5000, np.float32))
        a.step()
    assert a.save(tmp_path / "run", entries={"place": b"\0\1"})["digest"] == a.state_digest()
    b, pb, wb = one_weight()
    assert b.load(tmp_path / "run")["entries"] == {"place": b"\0\1"}
    c, pc, wc = one_weight()
    streams = {name: a.read_state(pa, name) for name in a.state_streams(pa)}
    c.write_state(pc, step_count=a.step_count(pa), **streams)
    for engine, parameter in ((a, pa), (b, pb), (c, pc)):
        engine.gradient_ready(parameter, gradients(9, 5000, np.float32))
        engine.step()
    assert a.state_digest() == b.state_digest() == c.state_digest()
    np.testing.assert_array_equal(wa, wb)
    np.testing.assert_array_equal(wa, wc)
    assert outboard.inspect_checkpoint(tmp_path / "run")["steps"] == 3
    with pytest.raises(outboard.IoFailure, match="nowhere"):
        a.load(tmp_path / "nowhere")


@pytest.mark.parametrize("placement", ["device_resident", "device_streamed", "fraction"])
def test_where_the_state_is_changes_no_bit(placement):
    settings = {"placement": placement}
    if placement == "fraction":
        settings |= {"device_fraction": 0.81, "bucket_bytes": 16384}
    digests = []
    for one in ({}, settings):
        engine, parameter, _ = one_weight(**one)
        parameter.array[:] = 1
        engine.weights_changed(parameter)
        engine.set_max_grad_norm(0.5)
        engine.gradient_ready(parameter, gradients(3, 5000, np.float32))
        result = engine.step()
        assert result.clip == 0.5 / (result.grad_norm + 1e-6)
        digests.append(engine.state_digest())
    assert digests[0] == digests[1]


def test_an_overflow_is_skipped_named_and_halves_the_scale():
    lines = []
    engine, parameter, weight = one_weight(
        loss_scaling=outboard.LossScaling(initial_scale=8.0),
        log=lambda level, line: lines.append(line))
    before = weight.copy()
    g = gradients(1, 5000, np.float32)
    g[77] = np.nan
    assert engine.loss_scale == 8.0
    engine.gradient_ready(parameter, g)
    result = engine.step()
    assert result.skipped and not result.applied and result.outcome == "skipped"
    assert result.non_finite == {"name": "w", "element": 77, "count": 1, "is_nan": True}
    assert (result.loss_scale, engine.loss_scale) == (8.0, 4.0)
    assert any("'w'" in line and "NaN at element 77" in line for line in lines)
    np.testing.assert_array_equal(weight, before)
    assert engine.stats()["steps_skipped"] == 1


def strided():
    return np.zeros((10, 10), np.float32)[:, ::2]


def frozen():
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("array, words", [
    ([1.0, 2.0], "no numpy.ndarray"),
    (np.zeros(3), "float64"),
    (np.zeros(3, np.int32), "int32"),
    (np.zeros(3, np.uint16), "uint16"),
    (np.zeros(3, ">f4"), "dtype"),
    (strided(), "gaps"),
    (frozen(), "written"),
    (np.frombuffer(bytearray(9), np.float32, 2, 1), "aligned"),
])
def test_wrong_arrays_are_refused_by_name(array, words):
    with outboard.Engine() as engine:
        engine.add_group(outboard.AdamW())
        with pytest.raises(outboard.InvalidArgument, match=f"(?s)'w'.*{words}"):
            engine.add_parameter("w", array)


@pytest.mark.parametrize("gradient, words", [
    (np.zeros(4999, np.float32), "shape"),
    (np.zeros(5000, np.float16), "f16"),
    (np.zeros(10000, np.float32)[::2], "gaps"),
    (np.zeros(5000, np.uint16), "is said to be"),
])
def test_wrong_gradients_are_refused_by_name(gradient, words):
    engine, parameter, _ = one_weight()
    with pytest.raises(outboard.InvalidArgument, match=f"(?s)'w'.*{words}"):
        engine.gradient_ready(parameter, gradient)


def test_misuse_is_named_and_changes_nothing():
    engine, parameter, _ = one_weight()
    digest = engine.state_digest()
    g = gradients(1, 5000, np.float32)
    engine.gradient_ready(parameter, g)
    with pytest.raises(outboard.ProtocolError, match="'w'"):
        engine.gradient_ready(parameter, g.copy())
    engine.discard()
    with pytest.raises(outboard.ProtocolError, match="commit"):
        engine.gradient_ready(engine.add_parameter("late", np.zeros(3, np.float32)),
                              np.zeros(3, np.float32))
    other, foreign, _ = one_weight()
    with pytest.raises(outboard.InvalidArgument, match="another engine"):
        engine.gradient_ready(foreign, g)
    with pytest.raises(outboard.InvalidArgument, match="no parameter"):
        engine.wait("w")
    with pytest.raises(outboard.InvalidArgument, match="no rule"):
        engine.add_group({"lr": 1})
    with pytest.raises(outboard.InvalidArgument, match="overlaps"):
        engine.add_parameter("part", parameter.array[10:20])
    assert engine.state_digest() == digest
    engine.close()
    engine.close()
    for call in (engine.step, engine.commit, engine.state_digest, engine.ledger,
                 lambda: engine.gradient_ready(parameter, g)):
        with pytest.raises(outboard.ProtocolError, match="closed"):
            call()


@pytest.mark.parametrize("settings, words", [
    ({"max_gradnorm": 1.0}, "did you mean 'max_grad_norm'"),
    ({"schedule": "soon"}, "'blocking'"),
    ({"max_grad_norm": -1.0}, "max_grad_norm"),
    ({"max_grad_norm": "one"}, "wrong type"),
    ({"placement": "fraction", "device_fraction": 2.0}, "device_fraction"),
    ({"schedule": "open", "max_grad_norm": 1.0}, "open"),
])
def test_a_setting_that_cannot_be_is_one_error(settings, words):
    with pytest.raises(outboard.InvalidConfig, match=words) as caught:
        outboard.Engine(**settings)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_other_threads_run_while_one_steps_and_may_call():
    engine, parameter, _ = one_weight()
    failures, rounds = [], []

    def call():
        try:
            for _ in range(50):
                engine.state_digest()
                rounds.append(engine.stats()["steps_applied"])
        except outboard.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(3):
        engine.gradient_ready(parameter, gradients(i, 5000, np.float32))
        engine.step()
    assert not failures and len(rounds) == 100 and engine.stats()["steps_applied"] == 3


def usage():
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * resource.getpagesize()
    return resident, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def test_engines_give_everything_back():
    def live(fail):
        engine = outboard.Engine(log=None)
        engine.add_group(outboard.AdamW())
        weight = np.zeros(2_000_000, np.float32)
        parameter = engine.add_parameter("w", weight)
        engine.commit()
        gradient = np.ones_like(weight)
        engine.gradient_ready(parameter, gradient)
        if fail:
            with pytest.raises(outboard.ProtocolError):
                engine.gradient_ready(parameter, gradient)
        else:
            engine.step()

    for i in range(4):
        live(i % 2)
    gc.collect()
    before = usage()
    for i in range(20):
        live(i % 2)
    gc.collect()
    after = usage()
    assert after[0] - before[0] < 20 << 20
    assert after[1:] == before[1:]


def test_a_forked_process_is_told_and_ends():
    program = """
import os, numpy, outboard
engine = outboard.Engine(log=None)
engine.add_group(outboard.AdamW())
parameter = engine.add_parameter('w', numpy.zeros(100, numpy.float32))
engine.commit()
child = os.fork()
if child == 0:
    try:
        engine.step()
    except outboard.ProtocolError as error:
        assert 'forked' in str(error)
        del engine
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
engine.gradient_ready(parameter, numpy.ones(100, numpy.float32))
assert engine.step().applied
print('parent goes on')
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True,
                          text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "parent goes on\n"), done.stderr


def test_python_m_outboard_prints_a_diagnosis():
    done = subprocess.run([sys.executable, "-m", "outboard"], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("native module:", "simd:", "threads:", "a step: right"):
        assert words in done.stdout


def test_without_the_native_module_the_error_says_which_file(tmp_path):
    source = os.path.dirname(outboard.__file__)
    package = tmp_path / "outboard"
    package.mkdir()
    for name in os.listdir(source):
        if name.endswith(".py"):
            (package / name).write_bytes(open(os.path.join(source, name), "rb").read())
    program = "import outboard\ntry:\n    outboard.Engine()\nexcept ImportError as e:\n    print(e)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=60, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert str(package / "_native") in done.stdout and "pip install" in done.stdout


def test_the_estimate_is_what_the_ledger_says():
    sizes = [(100_000, "f32"), (30_000, "f16")]
    planned = outboard.estimate(sizes)
    with outboard.Engine() as engine:
        engine.add_group(outboard.AdamW())
        engine.add_parameter("a", np.zeros(100_000, np.float32))
        engine.add_parameter("b", np.zeros(30_000, np.float16))
        engine.commit()
        ledger = engine.ledger()
    by_purpose = {}
    for entry in ledger["entries"]:
        by_purpose[entry["purpose"]] = by_purpose.get(entry["purpose"], 0) + entry["bytes"]
    for entry in planned["entries"]:
        by_purpose[entry["purpose"]] -= entry["bytes"]
    assert not any(by_purpose.values())
    assert planned["bytes_saved"] > 100_000 * 8


class Memory:
    """Of an array; tells when it goes whether the engine had ended."""

    def __init__(self, engine_of, told):
        self.data = np.zeros(1000, np.float32)
        self.__array_interface__ = self.data.__array_interface__
        self.engine_of, self.told = engine_of, told

    def __del__(self):
        self.told.append(self.engine_of().closed)


def test_an_engine_in_a_cycle_ends_before_its_arrays():
    told, native = [], []
    engine = outboard.Engine(log=None)
    native.append(engine._native)
    engine.add_group(outboard.AdamW())
    weight = np.asarray(Memory(lambda: native[0], told))
    engine.mine = engine, engine.add_parameter("w", weight)
    engine.commit()
    del engine, weight
    gc.collect()
    assert told == [True]


def test_a_fork_that_exits_as_usual_closes_nothing_of_its_parent():
    program = """
import os, sys, numpy, outboard
engine = outboard.Engine(log=None)
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True,
                          text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_log_that_calls_its_engine_is_told():
    program = """
import numpy, outboard
told = []
def log(level, line):
    try:
        engine.describe()
    except outboard.ProtocolError as error:
        told.append(str(error))
engine = outboard.Engine(log=log)
engine.add_group(outboard.AdamW())
engine.add_parameter('w', numpy.zeros(100, numpy.float32))
engine.commit()
assert told and all('log' in one for one in told), told
engine.describe()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
