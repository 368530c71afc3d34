"""The peer's side of accelerator.py: nn.Transformer under torch.compile."""

import sys

import torch
from side import serve
from torch import nn
from train_pytorch import Model


class PackedModel(Model):
    """`Model` of packed rows whose pairs have the same positions in all rows.

    One mask serves all rows; our side computes one for each row.
    """

    def __init__(self, sizes):
        super().__init__(sizes | sizes["model"])
        positions = torch.arange(sizes["length"])
        position = positions % sizes["pair"]
        pair = positions // sizes["pair"]
        apart = pair[:, None] != pair
        self.signal = self.signal[position]
        self.causal = self.causal | apart
        self.register_buffer("apart", apart)
        self.register_buffer("begins", position == 0)

    def forward(self, source, target):
        """Return the logits of `target` given `source`."""
        previous = nn.functional.pad(target, (1, 0))[:, :-1]
        hidden = self.transformer(
            self.embed(source),
            self.embed(previous.masked_fill(self.begins, 0)),
            src_mask=self.apart,
            tgt_mask=self.causal,
            memory_mask=self.apart,
            # With None, PyTorch compares the masks, which breaks the graph.
            src_is_causal=False,
            tgt_is_causal=False,
            memory_is_causal=False,
        )
        return nn.functional.linear(hidden, self.embedding.weight)


def make_step(task, sizes):
    """Return a function that makes updates and returns loss and device.

    Args:
      task: "train".
      sizes: sizes of the model and its batch, from accelerator.py.
    """
    if task != "train":
        raise ValueError(f"PyTorch is compared in training; got {task}.")
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = PackedModel(sizes).to(device)
    optimizer = torch.optim.Adam(
        model.parameters(), 1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    shape = (sizes["rows"], sizes["length"])
    source, target = (
        torch.randint(2, sizes["vocab_size"], shape, device=device)
        for _ in range(2)
    )
    bfloat16 = sizes["model"]["precision"] == "bfloat16"

    def loss_of(source, target):
        with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            logits = model(source, target)
        return criterion(logits.float().flatten(0, 1), target.flatten())

    loss_of = torch.compile(loss_of)

    def step():
        for _ in range(sizes["updates"]):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(source, target)
            loss.backward()
            optimizer.step()
        result = loss.item()  # waits for the device
        cuda = device == "cuda"
        return {
            "result": result,
            "device": torch.cuda.get_device_name() if cuda else device,
            "peak_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        }

    return step


if __name__ == "__main__":
    serve(make_step, sys.argv[1:])
