"""Any config at all is read, or refused with an error of our own."""

import contextlib
import json

from hypothesis import given

from support.mutations import hostile, mutated_json
from support.toy_problem import Toy
from t2t_lite.errors import T2TLiteError
from t2t_lite.hparam import HParams
from t2t_lite.training.config import (
    make_config,
    problem_options,
    read_config,
    require_same,
)


class _Encoder:
    sha256 = "0" * 64


ENCODERS = {"inputs": _Encoder(), "targets": _Encoder()}
PLACE = {"dir": "/data", "fingerprint": "f", "seed": 1}
CONFIG = make_config(Toy(), HParams(), 1, PLACE, ENCODERS)
VALID = json.dumps(CONFIG).encode()
CHANGED = mutated_json(json.loads(VALID)).map(lambda x: json.dumps(x).encode())


@given(content=CHANGED | hostile(VALID))
def test_configs(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp()
    (folder / "config.json").write_bytes(content)
    with contextlib.suppress(T2TLiteError):
        found = read_config(folder)
        problem_options(found)
        require_same(folder, found, json.loads(VALID))
