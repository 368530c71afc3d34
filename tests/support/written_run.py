"""Run folders written by hand, for tests of what is read from them."""

import json
import math
import random

from t2t_lite.hparam import HParams

SENTENCES = [
    ("Go!", "Los!"),
    ("Two dogs.", "Zwei Hunde."),
    ("A man <b>sleeps</b> & dreams.", "Ein Mann schläft & träumt."),
    ("A woman in a red coat crosses the street.", "Eine Frau im roten Mantel."),
]


def config(problem="wmt_ende", hparams_set="transformer_base", **changes):
    hparams = {**HParams().to_dict(), "train_steps": 6000, **changes}
    return {
        "format": 1,
        "problem": problem,
        "problem_fingerprint": "0" * 64,
        "hparams_set": hparams_set,
        "hparams": hparams,
        "seed": 1,
        "data": {"dir": "/data", "fingerprint": "1" * 64},
        "vocabulary": {"pieces.vocab.model": "2" * 64},
        "decodes_alone": True,
        "usr_dir": None,
        "versions": {"python": "3.12.1", "t2t-lite": "0.9"},
    }


def training(step, scale=1.0, noise=None):
    noise = (noise or random.Random(step)).gauss(0, 0.04)
    return {
        "step": step,
        "loss": scale * (1.6 + 6 * math.exp(-step / 900)) + noise,
        "learning_rate": 0.0007 * min(step / 2000, math.sqrt(2000 / step)),
        "tokens_per_second": 9000 * scale * (1 + noise),
        "gradient_norm": 0.4 + 3 * math.exp(-step / 500) + abs(noise),
        "padding": round(0.08 + noise / 10, 4),
        "skipped": 0,
        "epoch": 0,
        "seconds": round(step * 1.9 / scale, 2),
    }


def evaluation(step, metric="bleu", scale=1.0, **more):
    score = 27 / scale * (1 - math.exp(-step / 2500))
    return {
        "step": step,
        "dev_loss": scale * (1.4 + 6 * math.exp(-step / 1000)),
        "dev_perplexity": 9.0,
        f"dev_{metric}": score,
        **more,
    }


def write_run(
    folder,
    steps=6000,
    every=100,
    metric="bleu",
    scale=1.0,
    evaluated=True,
    sampled=True,
    ended=True,
    **changes,
):
    """A run that has come so far; gives its folder."""
    folder.mkdir(parents=True)
    told = config(**changes)
    if ended:
        told["training_cost"] = {
            "step": steps,
            "seconds": steps * 1.9,
            "source_tokens": 1e7,
            "target_tokens": 1.1e7,
            "skipped": 0,
            "devices": 1,
            "device": "CPU",
            "flops_counted": 1.2e16,
        }
    (folder / "config.json").write_text(json.dumps(told))
    records, samples = [training(1, scale)], []
    for step in range(every, steps + 1, every):
        records.append(training(step, scale))
        if evaluated and step % 500 == 0:
            records.append(evaluation(step, metric, scale))
            samples.append({"step": step, "samples": _translations(step)})
    if ended and evaluated:
        name = f"average-5-step-{steps:08d}"
        records.append(evaluation(steps, metric, scale / 1.03, weights=name))
        samples.append(
            {"step": steps, "weights": name, "samples": _translations(steps)}
        )
    write_lines(folder / "metrics.jsonl", records)
    if sampled:
        write_lines(folder / "samples.jsonl", samples)
    return folder


def write_lines(path, records):
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records))


def _translations(step):
    def at(text):  # more and more of it
        return text[: max(2, int(len(text) * step / 6000))]

    return [
        {"source": source, "translation": at(target), "reference": target}
        for source, target in SENTENCES
    ]
