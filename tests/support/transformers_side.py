"""The side of Hugging Face Transformers; runs in an environment of its own.

    .peers/bin/python tests/support/transformers_side.py REQUEST ANSWER

REQUEST is a JSON file with the paths of the weights, what `generate` is asked
and which filters of logits are asked for; ANSWER is written, JSON as well.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from transformers import MarianConfig, MarianMTModel
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

PAD, EOS = 0, 1


def make_model(sizes, weights):
    """A Marian model, which is the paper's, with these weights.

    Args:
      sizes: of a `Transformer`, by name.
      weights: a .npz file of arrays by the names of its `state_dict`.
    """
    config = MarianConfig(
        vocab_size=sizes["vocab_size"],
        d_model=sizes["hidden_size"],
        encoder_layers=sizes["num_hidden_layers"],
        decoder_layers=sizes["num_hidden_layers"],
        encoder_attention_heads=sizes["num_heads"],
        decoder_attention_heads=sizes["num_heads"],
        encoder_ffn_dim=sizes["filter_size"],
        decoder_ffn_dim=sizes["filter_size"],
        activation_function="relu",
        scale_embedding=True,
        static_position_embeddings=True,
        max_position_embeddings=sizes["positions"],
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config).eval()
    model.load_state_dict(
        {name: torch.tensor(value) for name, value in np.load(weights).items()}
    )
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-6  # ours; theirs is 1e-5
    return model


def generate(model, sources, prefix, options):
    """What `generate` finds for each source, best first.

    Args:
      model: from `make_model`.
      sources: lists of ids.
      prefix: ids that each target begins with, for each source; equally many.
      options: of `generate`.

    Returns: for each source a list of (ids, score, log-probability of the
      prefix). The ids are those after the start, up to the first EOS; the score
      is theirs, or the log-probability where the search is greedy.
    """
    rows = [torch.tensor(row) for row in sources]
    inputs = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    real = (inputs != PAD).long()
    start = torch.tensor([[PAD, *row] for row in prefix])
    beams = options["num_beams"]
    found = model.generate(
        inputs,
        attention_mask=real,
        decoder_input_ids=start,
        do_sample=False,
        num_return_sequences=beams,
        return_dict_in_generate=True,
        output_logits=True,
        output_scores=True,
        **({"early_stopping": "never"} if beams > 1 else {}),
        **options,
    )
    logits = model(inputs, real, decoder_input_ids=start).logits
    before = torch.log_softmax(logits[:, :-1], -1)
    before = before.gather(2, start[:, 1:, None]).sum((1, 2)).tolist()
    ids = [up_to_eos(row[1:]) for row in found.sequences.tolist()]
    if beams > 1:
        scores = found.sequences_scores.tolist()
    else:
        scores = log_probs_of(ids, found.logits, start.shape[1] - 1)
    hypotheses = list(
        zip(ids, scores, np.repeat(before, beams).tolist(), strict=True)
    )
    return [
        hypotheses[row * beams : (row + 1) * beams]
        for row in range(len(sources))
    ]


def log_probs_of(ids, logits, begin):
    """The log-probability of each row from a position on.

    Args:
      ids: lists, up to EOS.
      logits: of each step, [B, V].
      begin: how many of the ids the steps did not choose.
    """
    steps = torch.log_softmax(torch.stack(logits), -1)
    return [
        sum(
            steps[step, row, token].item()
            for step, token in enumerate(each[begin:])
        )
        for row, each in enumerate(ids)
    ]


def up_to_eos(ids):
    return ids[: ids.index(EOS) + 1] if EOS in ids else ids


def filtered(logits, temperature, top_k, top_p):
    """The probabilities that `generate` draws from, by its own filters."""
    scores = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    return torch.softmax(scores, -1).tolist()


def main(request_path, answer_path):
    request = json.loads(pathlib.Path(request_path).read_text())
    models = [make_model(request["sizes"], p) for p in request["weights"]]
    with torch.inference_mode():
        found = {
            name: [
                generate(model, request["sources"], **asked) for model in models
            ]
            for name, asked in request["cases"].items()
        }
    # Theirs divides by the temperature before it subtracts the largest logit,
    # which in float32 costs digits of large ones.
    logits = torch.tensor(request["logits"], dtype=torch.float64)
    answer = {
        "found": found,
        "filtered": [filtered(logits, **each) for each in request["filters"]],
    }
    pathlib.Path(answer_path).write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
