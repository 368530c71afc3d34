import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from support.places import SHARED_DATA
from support.random_lengths import random_lengths
from support.t2t_shards import write_shard
from support.words import Words
from t2t_lite import plugins, registry
from t2t_lite.data import pipeline
from t2t_lite.data.manifest import (
    Manifest,
    ShardRecord,
    SplitRecord,
    sha256_of,
)
from t2t_lite.data.packing import SIDES
from t2t_lite.data.pipeline import Position
from t2t_lite.datagen.generate import DataGenerator
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.problem import Problem

MULTI30K = SHARED_DATA / "multi30k"
FIRST_ID = 3


class Numbered(Problem):
    name = base_name = "numbered"


def pair(number, *lengths):
    """Return pair `number`; its ids encode the number and the side."""
    return {
        name: [FIRST_ID + 2 * number + side] * (length - 1) + [1]
        for side, (name, length) in enumerate(zip(SIDES, lengths, strict=True))
    }


def write_data(folder, shard_lengths):
    """Write shards with these (source, target) lengths; return the manifest."""
    shards, numbers = [], itertools.count()
    for index, lengths in enumerate(shard_lengths):
        file = f"numbered-train-{index:05d}-of-{len(shard_lengths):05d}"
        path = folder / file
        write_shard(path, [pair(next(numbers), *each) for each in lengths])
        size, digest = path.stat().st_size, sha256_of(path)
        shards.append(ShardRecord(file, len(lengths), size, digest))
    longest = collections.Counter(
        int(max(each)) for each in itertools.chain(*shard_lengths)
    )
    record = SplitRecord(
        longest.total(), 0, 0, dict(longest), {}, tuple(shards)
    )
    return Manifest("numbered", "", {}, {}, {"train": record}, 0, {})


def random_pairs(examples):
    return list(zip(*random_lengths(examples, longest=20), strict=True))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """500 pairs in four shards of uneven size."""
    folder = tmp_path_factory.mktemp("numbered")
    pairs = random_pairs(500)
    shards = [pairs[:130], pairs[130:131], pairs[131:380], pairs[380:]]
    return folder, write_data(folder, shards)


def report_of(data, **changes):
    options = {"max_positions": 128, "max_length": 20, "seed": 3} | changes
    return pipeline.padding_report(data[0], Numbered(), data[1], **options)


def eval_batches(data, max_positions=128):
    sizes = {"max_positions": max_positions, "max_length": 20}
    args = data[0], Numbered(), data[1], "train"
    return pipeline.eval_batches(*args, **sizes)


def training_batches(data, problem=None, **changes):
    arguments = {
        "max_positions": 128,
        "max_length": 20,
        "seed": 3,
        "window_size": 90,
    } | changes
    return pipeline.training_batches(
        data[0], problem or Numbered(), data[1], **arguments
    )


def taken(dataset, count):
    return [
        {name: value.numpy() for name, value in element.items()}
        for element in dataset.take(count)
    ]


def epoch_of(dataset, epoch=0):
    """Return the elements of one epoch, selected by their start positions."""
    elements, position = [], Position()
    for element in dataset:
        if position.epoch > epoch:
            break
        if position.epoch == epoch:
            elements.append({k: v.numpy() for k, v in element.items()})
        position = Position(*element["position"].numpy())
    return elements


def numbers_in(elements, side="inputs"):
    offset = FIRST_ID + (side == "targets")
    return [
        int(number)
        for element in elements
        for number in (element[side][:, 0] - offset) // 2
    ]


def same(first, second):
    return len(first) == len(second) and all(
        np.array_equal(a[name], b[name])
        for a, b in zip(first, second, strict=True)
        for name in a
    )


def test_no_example_lost_or_duplicated(data):
    for epoch in range(2):
        elements = epoch_of(training_batches(data), epoch)
        assert sorted(numbers_in(elements)) == list(range(500))
        assert numbers_in(elements) == numbers_in(elements, "targets")


def test_rows_end_in_eos_then_pads_within_max_positions(data):
    lengths = random_pairs(500)
    for element in epoch_of(training_batches(data)):
        for column, side in enumerate(("inputs", "targets")):
            ids = element[side]
            assert ids.dtype == np.int32
            assert ids.size <= 128
            for number, row in zip(numbers_in([element]), ids, strict=True):
                length = lengths[number][column]
                assert row[length - 1] == 1
                assert (row[: length - 1] == row[0]).all()
                assert not row[length:].any()


def test_the_order_depends_on_the_seed_and_the_epoch(data):
    first = epoch_of(training_batches(data))
    assert same(first, epoch_of(training_batches(data)))
    for other in (
        epoch_of(training_batches(data, seed=4)),
        epoch_of(training_batches(data), epoch=1),
    ):
        assert numbers_in(first) != numbers_in(other)
        sets = [
            {tuple(sorted(numbers_in([element]))) for element in elements}
            for elements in (first, other)
        ]
        assert len(sets[0] & sets[1]) < len(sets[0]) / 4


@pytest.mark.parametrize("packing", [False, True])
def test_stream_from_any_position_is_the_tail_of_the_stream(data, packing):
    whole = taken(training_batches(data, packing=packing), 200)
    positions = [Position(*element["position"]) for element in whole]
    ends_of_windows = [
        k for k, position in enumerate(positions) if position[1:] == (2, 0)
    ]
    ends_of_epochs = [
        k for k, position in enumerate(positions) if position[1:] == (0, 0)
    ]
    assert len(ends_of_epochs) >= 2
    for k in (0, 7, *ends_of_windows, *ends_of_epochs, 140, 199):
        start = Position(*whole[k]["position"])
        tail = training_batches(data, start=start, packing=packing)
        assert same(whole[k + 1 : k + 61], taken(tail, min(60, 199 - k))), start


def packed_pairs(elements):
    """Yield the (source, target) ids of packed rows, split by segments."""
    for element in elements:
        numbers = element["targets_segmentation"]
        for row in range(len(numbers)):
            for number in range(1, numbers[row].max() + 1):
                yield tuple(
                    element[side][row][
                        element[f"{side}_segmentation"][row] == number
                    ]
                    for side in ("inputs", "targets")
                )


def test_packed_epochs_hold_every_pair_once_both_sides_in_one_segment(data):
    lengths = random_pairs(500)
    for epoch in range(2):
        elements = epoch_of(training_batches(data, packing=True), epoch)
        pairs = list(packed_pairs(elements))
        numbers = [(int(source[0]) - FIRST_ID) // 2 for source, _ in pairs]
        assert sorted(numbers) == list(range(500))
        for number, (source, target) in zip(numbers, pairs, strict=True):
            assert (len(source), len(target)) == lengths[number]
            assert (source[:-1] == FIRST_ID + 2 * number).all()
            assert (target[:-1] == FIRST_ID + 2 * number + 1).all()
            assert source[-1] == target[-1] == 1


def test_packed_batches_have_one_shape_and_positions_from_0(data):
    for element in epoch_of(training_batches(data, packing=True)):
        for side in ("inputs", "targets"):
            ids = element[side]
            numbers = element[f"{side}_segmentation"]
            positions = element[f"{side}_position"]
            for values in (ids, numbers, positions):
                assert values.dtype == np.int32
                assert values.shape == (6, 20)  # 120 of 128 positions
            np.testing.assert_array_equal(numbers > 0, ids > 0)
            is_first = np.diff(numbers, axis=1, prepend=0) > 0
            np.testing.assert_array_equal(
                (positions == 0) & (ids > 0), is_first
            )
            continues = ~is_first & (ids > 0)
            steps = np.diff(positions, axis=1, prepend=0)
            assert (steps[continues] == 1).all()
            assert not positions[ids == 0].any()


def share_of_tokens(elements):
    sides = [element[name] for element in elements for name in SIDES]
    return sum((x > 0).sum() for x in sides) / sum(x.size for x in sides)


def test_reversed_problem_swaps_sides(data):
    straight = epoch_of(training_batches(data))
    swapped = epoch_of(training_batches(data, Numbered().reverse()))
    ids = [
        {int(row[0]) for element in elements for row in element[side]}
        for elements, side in ((straight, "inputs"), (swapped, "targets"))
    ]
    assert ids[0] == ids[1]
    assert all((element["inputs"][:, 0] % 2 == 0).all() for element in swapped)


def test_too_long_pairs_are_dropped_and_counted(data):
    kept = [n for n, pair in enumerate(random_pairs(500)) if max(pair) <= 12]
    elements = epoch_of(training_batches(data, max_length=12))
    assert sorted(numbers_in(elements)) == kept
    report = report_of(data, max_length=12)
    assert (report.examples, report.too_long) == (500, 500 - len(kept))


@pytest.mark.parametrize("packing", [False, True])
def test_windows_without_a_usable_pair_are_skipped(tmp_path, packing):
    shards = [[(30, 30)] * 10, [(5, 5)] * 10]
    data = tmp_path, write_data(tmp_path, shards)
    changes = {"max_length": 20, "window_size": 5, "packing": packing}
    whole = taken(training_batches(data, **changes), 8)
    if not packing:
        assert sorted(numbers_in(whole[:2])) == list(range(10, 20))
    else:
        assert len(list(packed_pairs(whole[:2]))) == 10
    for k in range(4):  # two epochs of two batches
        start = Position(*whole[k]["position"])
        tail = training_batches(data, start=start, **changes)
        assert same(whole[k + 1 :], taken(tail, 7 - k))


def test_data_without_a_usable_pair_is_refused(data):
    with pytest.raises(
        T2TLiteError, match="of 500, 500 are longer than max_le"
    ):
        training_batches(data, max_length=1)


def test_pair_longer_than_a_pass_is_refused_at_the_start(data):
    message = "gradient_accumulation_steps .* got 16, max_length=20, longest=20"
    for make in (training_batches, eval_batches):
        with pytest.raises(T2TLiteError, match=message):
            make(data, max_positions=16)


def test_a_pass_must_fit_the_longest_pair_that_is_kept(data):
    assert training_batches(data, max_positions=20, max_length=256)
    assert training_batches(data, max_positions=16, max_length=16)


def test_position_of_other_data_is_refused(data):
    with pytest.raises(T2TLiteError, match="window below 6.*other data"):
        training_batches(data, start=Position(0, 6, 0))


def test_eval_batches_hold_every_kept_pair_once_longest_first(data):
    dataset = eval_batches(data)
    elements = taken(dataset, -1)
    assert set(elements[0]) == {"inputs", "targets"}
    assert sorted(numbers_in(elements)) == list(range(500))
    widths = [
        max(e["inputs"].shape[1], e["targets"].shape[1]) for e in elements
    ]
    assert widths == sorted(widths, reverse=True)
    assert same(elements, taken(dataset, -1))


def test_read_pairs_keeps_the_order_of_the_files(data):
    pairs = list(pipeline.read_pairs(data[0], Numbered(), data[1], "train"))
    assert [len(s) for s, _ in pairs] == [s for s, _ in random_pairs(500)]
    assert [(int(s[0]) - FIRST_ID) // 2 for s, _ in pairs] == list(range(500))
    assert all(s[-1] == t[-1] == 1 for s, t in pairs)


@pytest.mark.parametrize("packing", [False, True])
def test_padding_report_counts_the_batches_of_the_stream(data, packing):
    elements = epoch_of(training_batches(data, packing=packing))
    report = report_of(data, packing=packing, window_size=90)
    assert report.batches == len(elements)
    assert report.token_fraction == pytest.approx(share_of_tokens(elements))
    assert str(report).startswith(f"500 pairs; about {report.batches} batches")


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "a flipped bit":
        content[len(content) // 2] ^= 4
    elif how == "cut short":
        del content[-5:]
    path.write_bytes(content)
    if how == "gone":
        path.unlink()


@pytest.mark.parametrize("how", ["a flipped bit", "cut short", "gone"])
def test_the_error_for_a_damaged_shard_names_it(tmp_path, how):
    pairs = random_pairs(100)
    manifest = write_data(tmp_path, [pairs[:50], pairs[50:]])
    bad = tmp_path / "numbered-train-00001-of-00002"
    damage(bad, how)
    dataset = training_batches((tmp_path, manifest))
    with pytest.raises(T2TLiteError, match=f"{bad.name} is (damaged|missing)"):
        with pipeline.read_errors(tmp_path, Numbered(), manifest):
            taken(dataset, 40)


def test_the_error_for_other_unreadable_data_names_the_folder(tmp_path):
    manifest = write_data(tmp_path, [random_pairs(10)])
    with pytest.raises(
        T2TLiteError, match=f"Cannot read the data in {tmp_path}"
    ):
        with pipeline.read_errors(tmp_path, Numbered(), manifest):
            raise tf.errors.DataLossError(None, None, "corrupted record at 0")


@pytest.mark.slow
@pytest.mark.skipif(
    not MULTI30K.is_dir(), reason=f"needs the Multi30k files in {MULTI30K}"
)
def test_95_percent_of_the_positions_are_tokens_on_multi30k(tmp_path):
    plugins.load_plugins()
    problem = registry.problem("multi30k_ende")
    manifest = DataGenerator(
        problem, tmp_path, raw_dir=MULTI30K, progress=False
    ).run()
    for max_positions in (2048, 4096):
        sizes = {"max_positions": max_positions, "max_length": 128, "seed": 0}
        report = pipeline.padding_report(tmp_path, problem, manifest, **sizes)
        assert report.token_fraction >= 0.95
        assert report.too_long == 0


def test_bpe_dropout_changes_the_tokens_in_each_epoch(tmp_path):
    problem = Words()
    problem.base_name = "words"
    data = tmp_path, DataGenerator(problem, tmp_path, progress=False).run()
    encoders = problem.load_encoders(tmp_path)
    options = {"problem": problem, "encoders": encoders, "max_positions": 64}

    def batches(rate=0.1, start=(0, 0, 0)):
        return training_batches(data, bpe_dropout=rate, start=start, **options)

    def rows(epoch):
        return sorted(
            tuple(row[row > 0])
            for element in epoch
            for side in SIDES
            for row in element[side]
        )

    def texts(epoch):
        return sorted(encoders["inputs"].decode(rows(epoch)))

    plain = epoch_of(batches(rate=0.0))
    first, second = (epoch_of(batches(), epoch) for epoch in range(2))
    assert texts(first) == texts(second) == texts(plain)
    assert len({*rows(first)} & {*rows(second)}) < 150  # of 200
    assert same(first, epoch_of(batches()))
    assert same(first[5:], epoch_of(batches(start=first[4]["position"])))
    # In a pass for the longest pair, no text may become longer.
    options["max_positions"] = max(data[1].split("train").lengths)
    assert texts(epoch_of(batches(rate=0.9))) == texts(plain)


def test_bpe_dropout_requires_a_sentencepiece_vocabulary(data):
    with pytest.raises(UsageError, match="SentencePiece"):
        training_batches(data, bpe_dropout=0.1, encoders={"inputs": None})
