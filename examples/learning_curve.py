"""Print the learning curve of a run.

python learning_curve.py RUN
"""

import json
import pathlib
import sys

WIDTH = 40  # characters of the largest loss


def main() -> None:
    """Print the training loss by update, and the scores on dev."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = (pathlib.Path(sys.argv[1]) / "metrics.jsonl").read_text()
    records = [json.loads(line) for line in lines.splitlines()]
    # The loss is null if all updates were skipped.
    records = [x for x in records if x.get("loss", 0) is not None]
    largest = max((x.get("loss", 0) for x in records), default=0)
    print("update   loss")
    for record in records:
        if "loss" in record:
            bar = "#" * round(WIDTH * record["loss"] / largest)
            text = f"{record['loss']:6.3f} {bar}"
        else:
            dev = {k: v for k, v in record.items() if k.startswith("dev_")}
            dev = {k: v for k, v in dev.items() if v is not None}  # or infinite
            text = " ".join(f"{name} {dev[name]:.4g} " for name in dev)
        print(f"{record['step']:6} {text}")


if __name__ == "__main__":
    main()
