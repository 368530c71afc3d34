"""One side of training_step.py: PyTorch's nn.Transformer, loss and Adam."""

import math
import resource
import sys

import torch
from side import serve
from torch import nn


class Model(nn.Module):
    """Shared embedding, nn.Transformer, softmax over the same matrix."""

    def __init__(self, sizes):
        super().__init__()
        size = sizes["hidden_size"]
        self.embedding = nn.Embedding(sizes["vocab_size"], size, padding_idx=0)
        nn.init.normal_(self.embedding.weight, 0, size**-0.5)
        self.transformer = nn.Transformer(
            size,
            sizes["num_heads"],
            sizes["num_hidden_layers"],
            sizes["num_hidden_layers"],
            sizes["filter_size"],
            dropout=0.1,
            batch_first=True,
        )
        self.dropout = nn.Dropout(0.1)
        _limit_dropout(self.transformer)
        length = torch.arange(sizes["length"]).float()[:, None]
        frequency = torch.exp(
            torch.arange(0, size, 2).float() * (-math.log(10000.0) / size)
        )
        signal = torch.stack(
            [torch.sin(length * frequency), torch.cos(length * frequency)], -1
        ).reshape(sizes["length"], size)
        self.register_buffer("signal", signal)
        mask = nn.Transformer.generate_square_subsequent_mask(sizes["length"])
        self.register_buffer("causal", mask == float("-inf"))
        self.scale = math.sqrt(size)

    def embed(self, ids):
        """Return dropout of embeddings times sqrt(d_model) plus positions."""
        return self.dropout(self.embedding(ids) * self.scale + self.signal)

    def forward(self, source, target):
        """Return the logits of `target` given `source`."""
        padding = source == 0
        previous = nn.functional.pad(target, (1, 0))[:, :-1]
        hidden = self.transformer(
            self.embed(source),
            self.embed(previous),
            tgt_mask=self.causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return nn.functional.linear(hidden, self.embedding.weight)


def _limit_dropout(transformer):
    """Keep dropout only on the outputs of sublayers, as in section 5.4.

    `nn.Transformer` also has dropout inside the feed-forward network and on
    attention weights, which our side does not.
    """
    for module in transformer.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
        elif isinstance(
            module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
        ):
            module.dropout.p = 0.0


def make_step(sizes, precision):
    """Return a function that does one whole update on the fixed batch."""
    torch.manual_seed(1)
    torch.set_num_threads(sizes["threads"])
    model = Model(sizes)
    optimizer = torch.optim.Adam(
        model.parameters(), 1e-4, betas=(0.9, 0.98), eps=1e-9
    )
    loss_of = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
    shape = (sizes["rows"], sizes["length"])
    source, target = (
        torch.randint(2, sizes["vocab_size"], shape) for _ in range(2)
    )
    bfloat16 = precision == "bfloat16"

    def update():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            logits = model(source, target)
        loss = loss_of(logits.float().flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        return {"loss": loss.item(), "peak_bytes": peak}

    return update


if __name__ == "__main__":
    serve(make_step, sys.argv[1:])
