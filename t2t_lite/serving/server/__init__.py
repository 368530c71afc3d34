"""A development server with TensorFlow Serving's REST and gRPC APIs."""
