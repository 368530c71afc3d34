import shutil

import pytest

from support.toy_problem import Toy, make
from t2t_lite.doctor import contents
from t2t_lite.doctor.checks import examine
from t2t_lite.doctor.finding import Asked


def found_by(check, **asked):
    return list(examine(Asked(**asked), (check,)))


def spoil(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def data(tmp_path):
    make(Toy(), tmp_path / "data")
    return {"data_dir": tmp_path / "data", "problem": Toy()}


def test_sound_data_is_in_order(data):
    (found,) = found_by(contents.check_data, **data, seconds=None)
    assert found == ("data", True, "45 pairs, checksums of 3 of 3 shards")


def test_in_no_time_it_says_how_much_it_compared(data):
    (found,) = found_by(contents.check_data, **data, seconds=1e-9)
    assert found.ok and "of 3 shards compared (--full" in found.text


def test_a_damaged_shard_is_something_to_do(data):
    spoil(next(data["data_dir"].glob("toy-dev-*")))
    (found,) = found_by(contents.check_data, **data)
    assert not found.ok and "toy-dev-00000-of-00001 is damaged" in found.text


def test_a_missing_vocabulary_is_something_to_do(data):
    (data["data_dir"] / "toy.vocab").unlink()
    (found,) = found_by(contents.check_data, **data)
    assert not found.ok and "toy.vocab is missing" in found.text


def test_data_that_is_not_there_yet_will_be_made(tmp_path):
    (found,) = found_by(contents.check_data, data_dir=tmp_path, problem=Toy())
    assert found.ok and "the trainer makes it" in found.text
    assert not found_by(contents.check_data, data_dir=tmp_path)


@pytest.fixture
def run(tiny_run, tmp_path):
    copy = shutil.copytree(tiny_run, tmp_path / "run")
    return {"data_dir": tmp_path, "output_dir": copy}


def test_a_sound_run_is_in_order(run):
    (found,) = found_by(contents.check_run, **run, seconds=None)
    assert found.ok, found.text
    assert "update 4, " in found.text and "--full" not in found.text
    (found,) = found_by(contents.check_run, **run, seconds=1e-9)
    assert found.ok and "--full" in found.text


def test_a_damaged_checkpoint_is_something_to_do(run):
    folder = run["output_dir"] / "checkpoints" / "step-00000004"
    spoil(next(folder.glob("tensors.data*")))
    (found,) = found_by(contents.check_run, **run, seconds=None)
    assert not found.ok and "step-00000004 is damaged" in found.text
    assert "to go on from step 2" in found.text


def test_a_lost_vocabulary_is_something_to_do(run):
    next(run["output_dir"].glob("*.vocab.*")).unlink()
    (found,) = found_by(contents.check_run, **run)
    assert not found.ok and "The vocabulary in" in found.text


def test_a_run_that_has_not_begun_is_in_order(tmp_path, run):
    (found,) = found_by(
        contents.check_run, data_dir=tmp_path, output_dir=tmp_path / "new"
    )
    assert found.ok and "none in" in found.text
    shutil.rmtree(run["output_dir"] / "checkpoints")
    (found,) = found_by(contents.check_run, **run)
    assert found.ok and "no checkpoint yet" in found.text
    assert not found_by(contents.check_run, data_dir=tmp_path)
