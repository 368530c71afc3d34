"""Run a MarianMT model in `transformers`, for test_huggingface.py.

It runs in the environment of `make huggingfacetest`:

    huggingface_reference.py make FOLDER LINES.json [KEY=VALUE ...]
    huggingface_reference.py run FOLDER LINES.json OUT.json

`make` writes a model with random weights and two vocabularies of the lines;
`run` writes logits, translations and their ids.
"""

import json
import pathlib
import sys

import sentencepiece
import torch
import transformers

BATCH = 50
SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 96,
    "activation_function": "swish",
    "scale_embedding": True,
}


def make(folder, lines, **changes):
    folder.mkdir(parents=True)
    pieces = ["</s>", "<unk>"]
    for side in ("source", "target"):
        path = folder / f"{side}.spm"
        with path.open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines[side]),
                model_writer=file,
                vocab_size=300,
                hard_vocab_limit=False,  # vocab_size is a maximum
                character_coverage=0.98,
                minloglevel=2,
            )
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        # The vocabulary lacks a few pieces, like those of OPUS-MT.
        pieces += [model.id_to_piece(i) for i in range(3, len(model) - 5)]
    pieces = [*dict.fromkeys(pieces), ">>deu<<", ">>fra<<", "<pad>"]
    ids = {piece: index for index, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(ids))
    tokenizer = transformers.MarianTokenizer(
        source_spm=str(folder / "source.spm"),
        target_spm=str(folder / "target.spm"),
        vocab=str(folder / "vocab.json"),
        source_lang="en",
        target_lang="de",
    )
    pad = ids["<pad>"]
    config = transformers.MarianConfig(
        vocab_size=len(ids),
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=None,
        **{**SIZES, **changes},
    )
    torch.manual_seed(1)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0, 0.1)
        model.final_logits_bias.normal_(0, 0.5)
    train(model, tokenizer, lines)
    model.generation_config = transformers.GenerationConfig(
        bad_words_ids=[[pad]],
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        num_beams=4,
        length_penalty=0.0,
        max_length=90,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def train(model, tokenizer, lines, steps=300):
    """Train a little, because random weights repeat one token without end."""
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(steps):
        first = step * 24 % (len(lines["source"]) - 24)
        source, target = (
            lines[side][first : first + 24] for side in ("source", "target")
        )
        batch = tokenizer(
            source, text_target=target, return_tensors="pt", padding=True
        )
        labels = batch["labels"]
        batch["labels"] = labels.masked_fill(
            labels == model.config.pad_token_id, -100
        )
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.2f}")


def run(folder, lines, output):
    """Write logits, translations and their ids for the lines."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    pairs = [lines["source"][:50], lines["target"][:50]]
    found = {"logits": [], "pieces": {}}
    for source, target in zip(*pairs, strict=True):
        batch = tokenizer(source, text_target=target, return_tensors="pt")
        with torch.no_grad():
            logits = model(**batch).logits[0]
        labels = batch["labels"][0].tolist()
        found["logits"].append({"ids": labels, "logits": logits.tolist()})
    options = {"length_penalty": 0.0, "max_new_tokens": 40}
    for beams in (1, 4):
        found["pieces"][beams] = []
        for start in range(0, len(lines["source"]), BATCH):
            batch = lines["source"][start : start + BATCH]
            batch = tokenizer(batch, return_tensors="pt", padding=True)
            for ids in model.generate(**batch, num_beams=beams, **options):
                pieces = tokenizer.convert_ids_to_tokens(ids[1:])
                real = [piece for piece in pieces if piece != "<pad>"]
                found["pieces"][beams].append(real)
    translate = transformers.pipeline(
        "translation", model=str(folder), framework="pt", **options
    )
    outputs = translate(lines["source"], num_beams=1, batch_size=BATCH)
    found["texts"] = [each["translation_text"] for each in outputs]
    output.write_text(json.dumps(found))


def main(command, folder, lines, *rest):
    torch.set_num_threads(1)
    folder, texts = pathlib.Path(folder), json.loads(open(lines).read())
    if command == "make":
        changes = dict(word.split("=") for word in rest)
        make(folder, texts, **{k: json.loads(v) for k, v in changes.items()})
    else:
        run(folder, texts, pathlib.Path(rest[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
