"""A run has one trainer at a time."""

import pytest

from t2t_lite.errors import T2TLiteError
from t2t_lite.training.faults.lock import only_trainer


def test_two_trainers_cannot_share_a_folder(tmp_path):
    folder = tmp_path / "run"  # which is made
    with only_trainer(folder):
        with pytest.raises(T2TLiteError, match="Another trainer .process"):
            with only_trainer(folder):
                pass
    with only_trainer(folder):
        pass
