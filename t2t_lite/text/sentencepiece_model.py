"""SentencePiece model files: learned from a corpus, and with the ids we use."""

import io
import pathlib
import random
import re
import tempfile
from collections.abc import Iterable, Sequence

from t2t_lite.errors import T2TLiteError
from t2t_lite.text.encoder import EOS_ID, PAD_ID, UNK_ID, cleaned

_LEAST_SIZE, _MOST_SIZE = UNK_ID + 1, 2**31 - 1  # that the trainer can count

# A larger corpus is sampled for its vocabulary, which bounds memory.
MOST_VOCABULARY_LINES = 1_000_000
_CHUNK = 10_000  # characters; the trainer needs lines of a bounded length

# SentencePiece writes a space as U+2581. So that a real U+2581 is not read back
# as a space it is escaped inside the model file: U+2581 as ESCAPE B, and ESCAPE
# itself, a private character that no text should contain, as ESCAPE A.
ESCAPE = "F8F0"
NORMALIZATION = f"2581\t{ESCAPE} 42\n{ESCAPE}\t{ESCAPE} 41\n"
_DENORMALIZATION = f"{ESCAPE} 42\t2581\n{ESCAPE} 41\t{ESCAPE}\n"

# The trainer drops a line that contains one of these, so it sees a space.
_RESERVED_IN_TRAINING = str.maketrans(dict.fromkeys("\0\t\r\n\u2585", " "))


def sample_lines(lines: Iterable[str], seed: int) -> tuple[list[str], int]:
    """What the trainer is given, and of how many lines that is.

    Empty lines are left out, very long ones are cut. `seed` chooses the sample
    of MOST_VOCABULARY_LINES, if there are more.
    """
    choose = random.Random(seed)
    kept, count = [], 0
    for count, line in enumerate(_in_pieces(lines), start=1):
        if count <= MOST_VOCABULARY_LINES:
            kept.append(line)
            continue
        place = choose.randrange(count)  # reservoir sampling
        if place < MOST_VOCABULARY_LINES:
            kept[place] = line
    return kept, count


def _in_pieces(lines):
    """The lines as the trainer can take them, without empty ones."""
    for line in lines:
        line = cleaned(line).translate(_RESERVED_IN_TRAINING)
        if line.isspace():
            continue
        for start in range(0, len(line), _CHUNK):
            yield line[start : start + _CHUNK]


def train_model(
    lines: list[str], vocab_size: int, tags: Sequence[str] = ()
) -> bytes:
    """The bytes of a freshly trained BPE model, the same for the same lines.

    Args:
      lines: as `sample_lines` gives them.
      vocab_size: pieces in all.
      tags: texts that are one piece each, wherever they stand.

    Raises:
      T2TLiteError: too little text for so many pieces, or too many different
        characters for so few.
    """
    import sentencepiece

    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder)
        (rules / "normalize.tsv").write_text(NORMALIZATION)
        (rules / "denormalize.tsv").write_text(_DENORMALIZATION)
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type="bpe",
                # Of what it cannot count, it does not say what it can.
                vocab_size=min(max(vocab_size, _LEAST_SIZE), _MOST_SIZE),
                pad_id=PAD_ID,
                eos_id=EOS_ID,
                unk_id=UNK_ID,
                bos_id=-1,  # none
                unk_surface="\ufffd",
                user_defined_symbols=list(tags),
                byte_fallback=True,
                character_coverage=0.9999,  # the rarest are left to the bytes
                # Nothing is normalized but the escape of U+2581.
                normalization_rule_tsv=str(rules / "normalize.tsv"),
                denormalization_rule_tsv=str(rules / "denormalize.tsv"),
                remove_extra_whitespaces=False,
                add_dummy_prefix=False,
                max_sentence_length=8 * _CHUNK,  # bytes: no line is dropped
                num_threads=1,  # the order of merges must not depend on it
                minloglevel=2,  # errors only
            )
        except RuntimeError as error:
            raise _explained(error, vocab_size) from error
    return _without_paths(model.getvalue())


def _explained(error, vocab_size):
    """A T2TLiteError that says what the trainer's error means."""
    message = str(error)
    if most := re.search(r"too high .*<= (\d+)", message):
        return T2TLiteError(
            f"vocab_size must be at most {most[1]} for so small a corpus; got "
            f"vocab_size={vocab_size}."
        )
    if least := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return T2TLiteError(
            f"vocab_size must be at least {least[1]}, for the 256 "
            "bytes and the characters of the corpus; got "
            f"vocab_size={vocab_size}."
        )
    return T2TLiteError(
        f"SentencePiece cannot train a vocabulary of {vocab_size}: {message}"
    )


def _without_paths(model):
    """The model without the names of the temporary rule files."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    proto.denormalizer_spec.ClearField("normalization_rule_tsv")
    return proto.SerializeToString(deterministic=True)


def with_our_ids(model: bytes) -> tuple[bytes, bool]:
    """A model that begins with PAD_ID, EOS_ID and UNK_ID.

    A model that does so already stays as it is. The trainer's own default is 0
    for unknown, 1 for the beginning, 2 for the end and none for padding. Pieces
    keep their order, scores and meaning, so texts have the same pieces as
    before.

    Returns: the bytes, and whether it writes every text, with bytes for
      characters that it does not know.

    Raises:
      ValueError: it is not a model.
    """
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    try:
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    except DecodeError as error:
        raise ValueError("it is not a model") from error
    if not proto.pieces:
        raise ValueError("it has no pieces")
    spec, by_name = proto.trainer_spec, {p.piece: p for p in proto.pieces}
    kinds = {
        spec.pad_piece: proto.SentencePiece.CONTROL,
        spec.eos_piece: proto.SentencePiece.CONTROL,
        spec.unk_piece: proto.SentencePiece.UNKNOWN,
    }
    if [(p.piece, p.type) for p in proto.pieces[:3]] != list(kinds.items()):
        pieces = [by_name.get(n, proto.SentencePiece(piece=n)) for n in kinds]
        for piece, kind in zip(pieces, kinds.values(), strict=True):
            piece.type = kind
        pieces += [p for p in proto.pieces if p.piece not in kinds]
        names = [piece.piece for piece in pieces]
        spec.pad_id, spec.eos_id, spec.unk_id = PAD_ID, EOS_ID, UNK_ID
        has_bos = spec.bos_piece in by_name
        spec.bos_id = names.index(spec.bos_piece) if has_bos else -1
        spec.vocab_size = len(pieces)
        del proto.pieces[:]
        proto.pieces.extend(pieces)
        model = proto.SerializeToString(deterministic=True)
    return model, spec.byte_fallback
