"""A run's test split in each engine: BLEU, what differs, speed, size.

    python benchmarks/decoding_engines.py RUN [--repeats=3] [--beam_size=4]

The engines take turns, so that what else the machine does slows all of them.
"""

import argparse
import pathlib
import statistics
import tempfile
import time

from t2t_lite.runtime import start_tensorflow


def main():
    """Prints one row for each engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--beam_size", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--alpha", type=float)
    parser.add_argument("--searches", type=int, help="(default: a core each)")
    parser.add_argument("--types", default="float32,int8,int8_float32,int16")
    args = parser.parse_args()
    start_tensorflow()
    from t2t_lite.decoding.lines import translate_lines
    from t2t_lite.decoding.streams.replicas import Replica, share_processor
    from t2t_lite.interop.ctranslate2_model import write_ctranslate2
    from t2t_lite.interop.ctranslate2_translator import CTranslate2Translator
    from t2t_lite.training.run import Run

    searches = share_processor(args.searches) or 1
    run = Run.open(args.run)
    model, weights = run.load_model()
    ours = run.translator(model, beam_size=args.beam_size, alpha=args.alpha)
    engines = {"tensorflow": [Replica(ours)] * searches}
    sizes = {"tensorflow": 4 * model.count_params()}
    for name in args.types.split(","):
        with tempfile.TemporaryDirectory() as folder:
            write_ctranslate2(ours, folder, name)
            sizes[name] = (pathlib.Path(folder) / "model.bin").stat().st_size
            engines[name] = CTranslate2Translator.open(folder, searches)
    sources, references = run.data.texts("test")
    answers, seconds = {}, {name: [] for name in engines}
    for repeat in range(args.repeats + 1):  # the first one warms up
        for name, engine in engines.items():
            start = time.perf_counter()
            found = translate_lines(
                engine, sources, batch_size=args.batch_size, prompt=False
            )
            answers[name] = [each.hypotheses[0] for each in found]
            if repeat:
                seconds[name].append(time.perf_counter() - start)
    print(f"{weights}; {len(sources)} lines, beam {args.beam_size}")
    print("engine         BLEU  lines differ  lines/s    MB")
    for name in engines:
        texts = [each.text for each in answers[name]]
        report = run.problem.evaluate(sources, references, texts)
        differ = sum(
            one.tokens != other.tokens
            for one, other in zip(
                answers["tensorflow"], answers[name], strict=True
            )
        )
        speed = len(sources) / statistics.median(seconds[name])
        print(
            f"{name:13} {report['score']:5.2f}  {differ:12}  {speed:7.1f}  "
            f"{sizes[name] / 1e6:4.1f}"
        )


if __name__ == "__main__":
    main()
