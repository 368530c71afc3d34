"""What each option of a search costs, and what it does to BLEU.

    python benchmarks/search_options.py RUN [--lines=256] [--repeats=5]

The options take turns with the plain search, so that what else the machine
does slows all of them; a price is the median of time / time of the plain one.
Constraints, prefixes and words to avoid are taken from the references: a word
of each, its first word, and the words of another line.
"""

import argparse
import statistics
import time

from t2t_lite.decoding.streams.requests import Request
from t2t_lite.runtime import start_tensorflow

# What is changed, by name; "plain" is what the others are compared with.
SETTINGS = {
    "plain": {},
    "beam_size=1": {"beam_size": 1},
    "max_new_tokens=40": {"max_new_tokens": 40},
    "min_new_tokens=5": {"min_new_tokens": 5},
    "no_repeat_ngram_size=3": {"no_repeat_ngram_size": 3},
    "suppress=<unk>": {"suppress": ("<unk>",)},
    "coverage_penalty=0.2": {"coverage_penalty": 0.2},
    "sample": {"sample": True},
    "sample, top_k=10": {"sample": True, "top_k": 10},
    "sample, top_p=0.9": {"sample": True, "top_p": 0.9},
}


def asked(sources, references):
    """Lists of requests by name."""
    words = [reference.split() for reference in references]
    longest = [max(each, key=len, default="") for each in words]
    return {
        "prefix": [
            Request(source, prefix=each[0] if each else "")
            for source, each in zip(sources, words, strict=True)
        ],
        "constraints": [
            Request(source, constraints=(word,) if word else ())
            for source, word in zip(sources, longest, strict=True)
        ],
        "avoid": [
            Request(source, avoid=tuple(other[:2]))
            for source, other in zip(sources, words[::-1], strict=True)
        ],
    }


def main():
    """Prints one row for each option."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--lines", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    start_tensorflow()
    from t2t_lite.decoding.lines import translate_lines
    from t2t_lite.training.run import Run

    run = Run.open(args.run)
    model, weights = run.load_model()
    twice, _ = run.load_ensemble("default", ["latest"])
    sources, references = (
        texts[: args.lines] for texts in run.data.texts("test")
    )
    sides = {
        name: (run.translator(model, **settings), sources, 1)
        for name, settings in SETTINGS.items()
    }
    plain = sides["plain"][0]
    sides["nbest=4"] = (plain, sources, 4)
    sides["sample, nbest=8"] = (sides["sample"][0], sources, 8)
    for name, requests in asked(sources, references).items():
        sides[name] = (plain, requests, 1)
    constraints = sides["constraints"][1]
    wide = run.translator(model, beam_size=10)
    sides["beam_size=10"] = (wide, sources, 1)
    sides["constraints, beam_size=10"] = (wide, constraints, 1)
    sides["ensemble of 2"] = (run.translator(twice), sources, 1)
    seconds = {name: [] for name in sides}
    found = {}
    for repeat in range(args.repeats + 1):  # the first one warms up
        for name, (translator, lines, count) in sides.items():
            start = time.perf_counter()
            found[name] = list(
                translate_lines(
                    translator,
                    lines,
                    num_hypotheses=count,
                    prompt=False,
                    note=lambda *_: None,
                )
            )
            if repeat:
                seconds[name].append(time.perf_counter() - start)
    print(f"{weights}; {len(sources)} lines, beam {plain.settings.beam_size}")
    print("option                      price   (range)      BLEU  not met")
    for name, times in seconds.items():
        ratios = [
            one / other
            for one, other in zip(times, seconds["plain"], strict=True)
        ]
        texts = [each.hypotheses[0].text for each in found[name]]
        score = run.problem.evaluate(sources, references, texts)["score"]
        unmet = sum(bool(x.hypotheses[0].facts) for x in found[name])
        print(
            f"{name:26}  {statistics.median(ratios):5.2f}  "
            f"({min(ratios):.2f}-{max(ratios):.2f})  {score:5.2f}  {unmet}"
        )


if __name__ == "__main__":
    main()
