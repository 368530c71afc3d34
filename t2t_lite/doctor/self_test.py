"""Makes one update on one device and on two, and says how far they differ.

A process of its own: logical devices are made before TensorFlow starts.
"""

import json

from t2t_lite.hparam import HParams
from t2t_lite.runtime import start_tensorflow

_PIECES = 16
_HPARAMS = HParams(
    hidden_size=8,
    filter_size=16,
    num_heads=2,
    num_hidden_layers=1,
    max_length=8,
    batch_tokens=64,
    micro_batches=2,
    warmup_steps=1,
)


def main() -> None:
    """Prints a JSON object with `devices` and `difference`."""
    start_tensorflow(fixed_weights=False)
    import tensorflow as tf

    from t2t_lite.training.cluster.devices import (
        choose_strategy,
        make_logical_cpus,
    )

    if len(tf.config.list_physical_devices("GPU")) > 1:
        many = choose_strategy()
        one = tf.distribute.OneDeviceStrategy("/gpu:0")
    else:
        make_logical_cpus(2)
        many, one = choose_strategy(2), choose_strategy(1)
    weights = [_weights_after_update(strategy) for strategy in (one, many)]
    difference = max(
        float(tf.reduce_max(tf.abs(a - b)))
        for a, b in zip(*weights, strict=True)
    )
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "logical CPU"
    devices = f"{many.num_replicas_in_sync} {kind}s"
    print(json.dumps({"devices": devices, "difference": difference}))


def _weights_after_update(strategy):
    import tensorflow as tf

    from t2t_lite.model.transformer import Transformer
    from t2t_lite.training.optimizer.updates import Updater
    from t2t_lite.training.state import prepare

    prepare(seed=1, deterministic=False)
    with strategy.scope():
        model = Transformer.from_hparams(
            _HPARAMS, _PIECES, _PIECES
        ).build_weights()
    updater = Updater(model, _HPARAMS, strategy, seed=1)
    # Two passes of different shapes and numbers of tokens.
    batches = [
        {"inputs": ids, "targets": ids}
        for ids in (
            tf.constant([[2, 3, 4, 1], [5, 1, 0, 0]]),
            tf.constant([[6, 7, 8, 9, 10, 1]]),
        )
    ]
    updater.update(batches, 1).read()
    return [tf.identity(variable.value) for variable in model.weights]


if __name__ == "__main__":
    main()
