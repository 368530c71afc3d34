from t2t_lite.doctor.checks import examine
from t2t_lite.doctor.finding import Asked, Finding


def test_an_error_is_what_a_check_found_and_others_go_on(tmp_path):
    def check_first(asked):
        raise RuntimeError("no idea")
        yield

    def check_second(asked):
        yield Finding("second", True, str(asked.data_dir))

    assert list(examine(Asked(tmp_path), (check_first, check_second))) == [
        ("first", False, "RuntimeError: no idea"),
        ("second", True, str(tmp_path)),
    ]
