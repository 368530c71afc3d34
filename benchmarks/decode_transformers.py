"""One side of decoding.py: `generate` of Hugging Face Transformers."""

import sys

import torch
from side import serve
from transformers import MarianConfig, MarianMTModel


def make_model(sizes):
    """Return a Marian model, as in the paper, with random weights."""
    torch.manual_seed(1)
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
        max_position_embeddings=512,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config).eval()


def make_step(sizes, beam_size):
    """Return a function that decodes the fixed batch."""
    torch.set_num_threads(sizes["threads"])
    model = make_model(sizes)
    length = sizes["length"]
    inputs = torch.randint(2, sizes["vocab_size"], (sizes["rows"], length))

    def run():
        with torch.inference_mode():
            ids = model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                num_beams=beam_size,
                do_sample=False,
                min_new_tokens=length,
                max_new_tokens=length,
                length_penalty=0.6,
                use_cache=True,
            )
        assert ids.shape == (sizes["rows"], length + 1)
        return length

    return run


if __name__ == "__main__":
    serve(make_step, sys.argv[1:])
