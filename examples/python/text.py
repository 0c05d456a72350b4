# SPDX-License-Identifier: Apache-2.0
"""What the recipes share: a small GPT-2 of random weights, and text to train it on, byte by byte."""
import pathlib

import torch
import transformers

LENGTH = 64


def model(seed=0):
    torch.manual_seed(seed)
    transformers.logging.set_verbosity_error()
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=256, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4, bos_token_id=None,
        eos_token_id=None, use_cache=False, loss_type="ForCausalLMLoss"))


class Text(torch.utils.data.Dataset):
    """Pieces of this project's documents, or of the text files given."""

    def __init__(self, *files):
        paths = [pathlib.Path(f) for f in files] or sorted(
            (pathlib.Path(__file__).parents[2] / "docs").glob("*.md"))
        text = b"".join(path.read_bytes() for path in paths)
        self.ids = torch.tensor(list(text), dtype=torch.long)

    def __len__(self):
        return len(self.ids) // LENGTH

    def __getitem__(self, index):
        piece = self.ids[index * LENGTH:(index + 1) * LENGTH]
        return {"input_ids": piece, "labels": piece}
