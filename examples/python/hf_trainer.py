# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer: the optimizer by optimizer_cls_and_kwargs, the rest by a TrainerCallback.

usage: hf_trainer.py FOLDER [STEPS]     checkpoints go to FOLDER; a second run goes on from there
"""
import pathlib
import sys

import text
import transformers

import outboard.torch


class NativeCheckpoints(transformers.TrainerCallback):
    """Saves the engine's own checkpoint beside each of Trainer's, and loads it again.

    Trainer also saves optimizer.pt, from which it resumes; a run on other groups or names of
    parameters can go on from the native one.
    """

    def on_save(self, args, state, control, optimizer=None, **_):
        folder = pathlib.Path(args.output_dir) / f"checkpoint-{state.global_step}" / "outboard"
        self.own(optimizer).save(folder, entries={"step": str(state.global_step).encode()})

    def on_log(self, args, state, control, logs=None, optimizer=None, **_):
        if optimizer is not None and logs is not None:
            logs["skipped"] = self.own(optimizer).steps_skipped

    @staticmethod
    def own(optimizer):
        return getattr(optimizer, "optimizer", optimizer)  # Accelerate wraps it


def main(folder, steps=40):
    arguments = transformers.TrainingArguments(
        folder, max_steps=steps, per_device_train_batch_size=8, gradient_accumulation_steps=2,
        learning_rate=3e-3, lr_scheduler_type="cosine", warmup_steps=5, max_grad_norm=1.0,
        logging_steps=10, save_steps=20, use_cpu=True, report_to=[], disable_tqdm=True, seed=0)
    trainer = transformers.Trainer(
        text.model(), arguments, train_dataset=text.Text(),
        optimizer_cls_and_kwargs=(outboard.torch.AdamW, {"lr": 3e-3, "weight_decay": 0.01}),
        callbacks=[NativeCheckpoints()])
    latest = transformers.trainer_utils.get_last_checkpoint(folder)
    result = trainer.train(resume_from_checkpoint=latest)
    own = NativeCheckpoints.own(trainer.optimizer)
    print(f"loss {result.training_loss:.4f}, applied {own.steps_applied}, skipped {own.steps_skipped}")
    print(f"digest {own.state_digest():016x}")


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    main(sys.argv[1], *map(int, sys.argv[2:]))
