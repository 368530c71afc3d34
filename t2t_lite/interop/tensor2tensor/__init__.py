"""Import of tensor2tensor's checkpoints, hparams and shards."""
