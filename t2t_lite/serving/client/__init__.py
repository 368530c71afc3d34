"""A server, asked: ours or TensorFlow Serving, over REST or gRPC."""
