# SPDX-License-Identifier: Apache-2.0
"""The scripts of examples/python, and Trainer's own clipping beside torch.optim.AdamW."""
import pathlib
import re
import runpy
import shutil
import sys

import pytest
import torch

import outboard
import outboard.torch as ot

RECIPES = pathlib.Path(__file__).parents[2] / "examples" / "python"


@pytest.fixture
def recipe(capsys, monkeypatch):
    """Runs one with arguments; returns what it printed."""
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(str(RECIPES))

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(RECIPES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def digest(text):
    return re.findall(r"digest ([0-9a-f]{16})", text)[-1]


def test_the_plain_loop_learns_and_has_the_same_bits_each_time(recipe):
    first, second = recipe("plain_loop.py", 20), recipe("plain_loop.py", 20)
    losses = [float(x) for x in re.findall(r"loss (\S+)", first)]
    assert losses[-1] < losses[0] - 0.5
    assert "applied 20, skipped 0" in first and "B/param" in first
    assert digest(first) == digest(second)


def test_accelerate_accumulates_and_clips(recipe):
    pytest.importorskip("accelerate")
    text = recipe("accelerate_loop.py", 10)
    losses = [float(x) for x in re.findall(r"loss (\S+)", text)]
    assert losses[-1] < losses[0] - 0.3 and "applied 10, skipped 0" in text


def test_lightning_goes_on_from_its_checkpoint(recipe, tmp_path):
    pytest.importorskip("lightning")
    text = recipe("lightning_module.py", tmp_path, 6)
    losses = [float(x) for x in re.findall(r"loss (\S+),", text)]
    assert re.findall(r"steps (\d+)", text) == ["6", "12"] and losses[1] < losses[0]


def test_trainer_goes_on_from_its_checkpoint_with_the_same_bits(recipe, tmp_path):
    pytest.importorskip("transformers")
    whole = recipe("hf_trainer.py", tmp_path, 24)
    assert "skipped 0" in whole
    native = outboard.inspect_checkpoint(tmp_path / "checkpoint-20" / "outboard")
    assert native["steps"] == 20 and native["entries"] == {"step": b"20"}
    shutil.rmtree(tmp_path / "checkpoint-24")
    assert digest(recipe("hf_trainer.py", tmp_path, 24)) == digest(whole)


def test_losses_under_trainer_are_those_of_torchs_adamw(recipe, tmp_path):
    transformers = pytest.importorskip("transformers")
    import text  # of the recipes

    def losses(optimizer_class):
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=20, per_device_train_batch_size=2, learning_rate=1e-3,
            lr_scheduler_type="cosine", max_grad_norm=0.5, logging_steps=1, save_strategy="no",
            use_cpu=True, report_to=[], disable_tqdm=True, seed=0)
        trainer = transformers.Trainer(
            text.model(), arguments, train_dataset=text.Text(),
            optimizer_cls_and_kwargs=(optimizer_class, {"lr": 1e-3, "weight_decay": 0.1}))
        found = []

        class Keep(transformers.TrainerCallback):
            def on_step_end(self, args, state, control, model=None, **_):
                found.append(sum(p.detach().double().sum().item() for p in model.parameters()))

        trainer.add_callback(Keep())
        trainer.train()
        return [float(one["loss"]) for one in trainer.state.log_history if "loss" in one], found

    (ours, our_sums), (stock, stock_sums) = losses(ot.AdamW), losses(torch.optim.AdamW)
    assert len(ours) == 20 and stock[-1] < stock[0]
    assert ours == pytest.approx(stock, rel=1e-5)
    assert our_sums == pytest.approx(stock_sums, rel=1e-5)
