"""Exports behind TensorFlow Serving's API, REST and gRPC."""
