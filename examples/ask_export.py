"""Translate with an exported model, without t2t-lite.

    python ask_export.py EXPORT_DIR "some text" "some more"

It requires only TensorFlow and TF Text, which TensorFlow Serving contains.
EXPORT_DIR is a version, or a folder of versions, of which it loads the newest
like the server. Without texts, it reads lines from stdin.
"""

import itertools
import logging
import os
import pathlib
import sys


def newest_version(export_dir: pathlib.Path) -> pathlib.Path:
    """Return the folder, or the version in it with the largest number."""
    versions = [f for f in export_dir.glob("[0-9]*") if f.name.isdecimal()]
    versions.sort(key=lambda folder: int(folder.name))
    for folder in (export_dir, *reversed(versions)):
        if (folder / "saved_model.pb").is_file():
            return folder
    sys.exit(f"{export_dir} is not an export: no saved_model.pb and no 1/.")


def main() -> None:
    """Print a translation for each text."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    version = newest_version(pathlib.Path(sys.argv[1]))
    texts = iter(sys.argv[2:] or (line.rstrip("\n") for line in sys.stdin))
    # TensorFlow's libraries log some lines before they read this.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("absl").setLevel(logging.ERROR)
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (the model uses its ops)

    try:
        model = tf.saved_model.load(str(version))
        translate = model.signatures["serving_default"]
    except (OSError, KeyError) as error:
        sys.exit(f"Cannot load {version}: {str(error).splitlines()[0]}")
    while batch := list(itertools.islice(texts, 32)):
        for text in translate(inputs=tf.constant(batch))["outputs"].numpy():
            print(text.decode("utf-8"), flush=True)


if __name__ == "__main__":
    main()
