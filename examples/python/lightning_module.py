# SPDX-License-Identifier: Apache-2.0
"""Lightning: configure_optimizers() returns the optimizer; clipping and checkpoints are Lightning's.

usage: lightning_module.py FOLDER [STEPS]
"""
import sys

import lightning
import text
import torch

import outboard.torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = text.model()

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = outboard.torch.AdamW(self.named_parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / 5))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train(folder, steps, resume=None):
    lightning.seed_everything(0, verbose=False)
    loader = torch.utils.data.DataLoader(text.Text(), batch_size=8)
    trainer = lightning.Trainer(
        accelerator="cpu", max_steps=steps, gradient_clip_val=1.0, accumulate_grad_batches=2,
        default_root_dir=folder, logger=False, enable_progress_bar=False, enable_model_summary=False)
    module = Module()
    trainer.fit(module, loader, ckpt_path=resume)
    trainer.save_checkpoint(f"{folder}/last.ckpt", weights_only=False)
    optimizer = trainer.optimizers[0]
    print(f"steps {trainer.global_step}, loss {trainer.callback_metrics['loss']:.4f}, "
          f"digest {optimizer.state_digest():016x}")


def main(folder, steps=20):
    train(folder, steps)
    train(folder, 2 * steps, resume=f"{folder}/last.ckpt")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
