"""Asks an exported model for translations, without t2t-lite.

    python ask_export.py EXPORT_DIR "some text" "some more"

Needs only TensorFlow and TF Text, as TensorFlow Serving has them. Takes the
newest version in the folder, as the server does; without texts, reads stdin.
"""

import os
import pathlib
import sys


def newest_version(export_dir: str) -> pathlib.Path:
    """The version folder with the largest number."""
    folders = pathlib.Path(export_dir).glob("[0-9]*")
    return max(folders, key=lambda folder: int(folder.name))


def main() -> None:
    """Prints a translation for each text."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (the model uses its ops)

    if len(sys.argv) < 2:
        sys.exit(__doc__)
    model = tf.saved_model.load(str(newest_version(sys.argv[1])))
    texts = sys.argv[2:] or [line.rstrip("\n") for line in sys.stdin]
    answer = model.signatures["serving_default"](inputs=tf.constant(texts))
    for text in answer["outputs"].numpy():
        print(text.decode("utf-8"))


if __name__ == "__main__":
    main()
