"""The model as a KerasHub `Seq2SeqLM`, with presets, on every Keras backend.

Import this module before `keras_hub.models.Seq2SeqLM.from_preset`, because it
registers the classes with Keras.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import keras_hub
import tensorflow as tf
from keras import ops

from t2t_lite.decoding.search.scores import NEG_INF
from t2t_lite.decoding.translator import Translator
from t2t_lite.errors import UsageError
from t2t_lite.files import PathLike
from t2t_lite.model.layers import DropoutMasks, no_dropout
from t2t_lite.model.transformer import Transformer
from t2t_lite.ops import Tensor, for_xla
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID
from t2t_lite.tokenizers.vocabulary import open_vocabulary

# Features of a batch and files of a preset, as KerasHub names them.
_SOURCE, _SOURCE_MASK = "encoder_token_ids", "encoder_padding_mask"
_TARGET, _TARGET_MASK = "decoder_token_ids", "decoder_padding_mask"
_VOCABULARY = "vocabulary.model"

_register = keras.saving.register_keras_serializable(package="t2t_lite")


@_register
class T2TBackbone(keras_hub.models.Backbone):
    """A `t2t_lite.Transformer` without its softmax layer.

    Args:
      name: the name of the model.
      trainable: whether `fit` changes the weights.
      dtype: a Keras dtype policy; None takes Keras' default.
      config: arguments of `Transformer` by name.

    Call arguments:
      inputs: a dict of `encoder_token_ids`, int [B, S], `encoder_padding_mask`,
        bool [B, S], and `decoder_token_ids`, int [B, T], of which the first is
        the start token.
      training: apply dropout.

    Returns:
      A dict of `encoder_sequence_output`, float [B, S, D], and
      `decoder_sequence_output`, float [B, T, D].
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
        **config: Any,
    ):
        policy = keras.dtype_policies.get(dtype)
        super().__init__(name=name, trainable=trainable, dtype=policy)
        self.transformer = Transformer(**config, dtype=policy.name)
        self.transformer.build_weights()
        self.built = True

    def get_config(self) -> dict[str, Any]:
        return {**self.transformer.get_config(), **super().get_config()}

    def features(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the features of a `Transformer` call.

        The Transformer itself shifts targets: [start, 5, 6] -> [5, 6, PAD_ID].
        """
        targets = inputs[_TARGET]
        last = ops.zeros_like(targets[:, :1])
        return {
            "inputs": ops.where(inputs[_SOURCE_MASK], inputs[_SOURCE], PAD_ID),
            "targets": ops.concatenate([targets[:, 1:], last], axis=1),
        }

    def call(
        self, inputs: Mapping[str, Tensor], training: bool = False
    ) -> dict[str, Tensor]:
        model, features = self.transformer, self.features(inputs)
        dropout = no_dropout
        if training:
            dropout = DropoutMasks(model.dropout_seed.next())
        memory, mask = model.encode(features["inputs"], dropout)
        states = model.decode(features["targets"], memory, mask, dropout)
        return {
            "encoder_sequence_output": memory,
            "decoder_sequence_output": states,
        }


@_register
class T2TTokenizer(keras_hub.tokenizers.Tokenizer):
    """A vocabulary of t2t-lite, of any type.

    Args:
      vocabulary: the file; None for a preset, which contains a copy.
      options: options of `keras_hub.tokenizers.Tokenizer`.
    """

    backbone_cls = T2TBackbone
    start_token_id = pad_token_id = PAD_ID
    end_token_id = EOS_ID
    special_token_ids = (PAD_ID, EOS_ID)

    def __init__(self, vocabulary: PathLike | None = None, **options: Any):
        super().__init__(**options)
        self.file_assets = [_VOCABULARY]
        self._encoder: Any = vocabulary and open_vocabulary(vocabulary)

    def save_assets(self, dir_path: PathLike) -> None:
        """Copy the vocabulary to a folder."""
        path = Path(dir_path, _VOCABULARY)
        shutil.copyfile(self._encoder.path, path)

    def load_assets(self, dir_path: PathLike) -> None:
        """Open the vocabulary in a folder."""
        self._encoder = open_vocabulary(Path(dir_path, _VOCABULARY))

    def vocabulary_size(self) -> int:
        return self._encoder.vocab_size

    def get_vocabulary(self) -> list[str]:
        return self._encoder.ids_to_pieces(range(self.vocabulary_size()))

    def id_to_token(self, id: int) -> str:
        return self._encoder.ids_to_pieces([id])[0]

    def token_to_id(self, token: str) -> int:
        return self._encoder.pieces_to_ids([token])[0]

    def tokenize(self, inputs: Any) -> Any:
        """Return the ids, as a tf.Tensor, of a text or of texts [B]."""
        texts = tf.convert_to_tensor(inputs)
        ids = self._encoder.encode_tf(tf.reshape(texts, [-1]))
        return ids if texts.shape.rank else ids[0]

    def detokenize(self, inputs: Any) -> Any:
        """Return the text, as a tf.Tensor, of ids [T] or of rows of ids."""
        if not isinstance(inputs, tf.RaggedTensor):
            inputs = tf.convert_to_tensor(inputs)
        if inputs.shape.rank == 1:
            return self._encoder.decode_tf(inputs[None])[0]
        return self._encoder.decode_tf(inputs)


@_register
class T2TSeq2SeqLMPreprocessor(keras_hub.models.Seq2SeqLMPreprocessor):
    """Makes features of texts, a dict of `encoder_text` and `decoder_text`.

    A source ends with EOS. A target also begins with padding, the start token.
    `encoder_sequence_length` and `decoder_sequence_length` are the padded
    lengths.
    """

    backbone_cls = T2TBackbone
    tokenizer_cls = T2TTokenizer

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.encoder_packer = keras_hub.layers.StartEndPacker(
            end_value=EOS_ID,
            pad_value=PAD_ID,
            sequence_length=self.encoder_sequence_length,
            return_padding_mask=True,
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "encoder_sequence_length": self.encoder_sequence_length,
            "decoder_sequence_length": self.decoder_sequence_length,
        }


@_register
class T2TSeq2SeqLM(keras_hub.models.Seq2SeqLM):
    """A `t2t_lite.Transformer` that generates and trains as KerasHub's models.

    A call maps the inputs of `T2TBackbone` to logits, float32 [B, T, V].
    Without a `preprocessor` the inputs of `fit` and `generate` are ids.
    """

    backbone_cls = T2TBackbone
    preprocessor_cls = T2TSeq2SeqLMPreprocessor

    def __init__(
        self,
        backbone: T2TBackbone,
        preprocessor: T2TSeq2SeqLMPreprocessor | None = None,
        compile: bool = True,
        name: str | None = None,
    ):
        policy = backbone.dtype_policy
        super().__init__(compile=False, name=name, dtype=policy)
        self.backbone, self.preprocessor = backbone, preprocessor
        if compile:
            self.compile()

    @classmethod
    def from_translator(cls, translator: Translator) -> Self:
        """Return the model of a translator, with a copy of its weights.

        Raises:
          UsageError: a preset cannot express the model.
        """
        source, target = translator.source_encoder, translator.target_encoder
        if source is not target:
            raise UsageError(
                "A preset of KerasHub requires one vocabulary for both sides "
                f"(got {source.path.name} and {target.path.name})."
            )
        if translator.constraint is not None:
            raise UsageError(
                "A preset of KerasHub does not support constrained search: "
                "export with `format=saved_model`."
            )
        model = translator.single_model
        backbone = T2TBackbone(**{**model.get_config(), "name": None})
        backbone.transformer.set_weights(model.get_weights())
        preprocessor = T2TSeq2SeqLMPreprocessor(
            T2TTokenizer(source.path),
            encoder_sequence_length=translator.max_length,
            decoder_sequence_length=translator.max_length,
        )
        return cls(backbone, preprocessor)

    def call(
        self, inputs: Mapping[str, Tensor], training: bool = False
    ) -> Tensor:
        features = self.backbone.features(inputs)
        return self.backbone.transformer(features, training=training)

    def generate_step(
        self,
        inputs: Mapping[str, Tensor],
        stop_token_ids: Sequence[int] | None = None,
    ) -> dict[str, Tensor]:
        """Complete the targets of a batch; `generate` compiles this function.

        Args:
          inputs: those of a call, and `decoder_padding_mask`, bool [B, T]: True
            at the start token and at given tokens, which are kept.
          stop_token_ids: tokens that end a target; None: no token.

        Returns:
          A dict of `decoder_token_ids` and their `decoder_padding_mask`.
        """
        model, targets = self.backbone.transformer, inputs[_TARGET]
        given = ops.cast(inputs[_TARGET_MASK], "bool")
        with for_xla():
            features = self.backbone.features(inputs)
            memory, mask = model.encode(features["inputs"])
            length = ops.shape(targets)[1]
            step_fn, cache = model.init_decoding(memory, mask, 1, length)

            def predict(targets, cache, index):
                index = index - 1  # the model does not count the start token
                ids = ops.take(targets, index, axis=1)[:, None]
                outputs = step_fn(ids, index, cache, return_states=True)
                logits, states, cache = outputs
                is_padding = ops.arange(logits.shape[-1]) == PAD_ID
                logits = ops.where(is_padding, NEG_INF, logits[:, 0])
                return logits, states[:, 0], cache

            # The first position without a given token in some row.
            first = ops.min(ops.sum(ops.cast(given, "int32"), axis=1))
            _, cache = ops.while_loop(
                lambda i, cache: i < first,
                lambda i, cache: (i + 1, predict(targets, cache, i)[-1]),
                (ops.convert_to_tensor(1, "int32"), cache),
            )
            targets = self.sampler(
                next=predict,
                prompt=targets,
                cache=cache,
                index=first,
                mask=given,
                stop_token_ids=stop_token_ids,
                hidden_states=model.decode(features["targets"], memory, mask),
                model=self,
            )
        ended = ops.zeros_like(given)
        for token in stop_token_ids or ():
            ended = ended | (~given & (targets == token))
        ended = ops.cast(ended, "int32")
        is_before = ops.cumsum(ended, axis=1) == ended
        return {_TARGET: targets, _TARGET_MASK: is_before}
