"""Warm-up requests as TensorFlow Serving reads them."""

import pytest
import tensorflow as tf

from t2t_lite.serving.requests import WARMUP_FILE


def logged_requests(folder):
    """Yield the warm-up requests of an export as `PredictRequest`s."""
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    records = tf.data.TFRecordDataset(str(folder / WARMUP_FILE))
    for record in records.as_numpy_iterator():
        log = logs.PredictionLog.FromString(record)
        size = log.ByteSize()
        log.DiscardUnknownFields()
        assert log.ByteSize() == size == len(record)
        yield log.predict_log.request
