import asyncio
import shutil
import threading

import pytest

from t2t_lite.errors import T2TLiteError
from t2t_lite.serving.server.models import (
    ModelConfig,
    Models,
    Policy,
    State,
)
from t2t_lite.serving.server.refusal import Refusal, Status


def put(folder, number, text="fine"):
    """A version as an exporter writes it: renamed when complete."""
    hidden = folder / ".hidden"
    hidden.mkdir()
    (hidden / "saved_model.pb").write_text(text)
    return hidden.rename(folder / str(number))


def load(folder):
    text = (folder / "saved_model.pb").read_text()
    if text == "broken":
        raise ValueError("no graph")
    return f"{folder.name} {text}"


def states(model):
    return {n: v.state for n, v in sorted(model.versions.items())}


def play(folder, scenario, load=load, **config):
    said = []

    async def run():
        models = Models([ModelConfig("m", folder, **config)], load, said.append)
        try:
            await scenario(models, models.by_name["m"])
        finally:
            models.close()

    asyncio.run(run())
    return said


def test_a_new_version_takes_over_and_the_old_one_finishes(tmp_path):
    async def scenario(models, model):
        put(tmp_path, 1)
        await models.start()
        old = model.find()
        with old.in_use() as served:
            put(tmp_path, 2)
            await model.refresh()
            await asyncio.sleep(0)
            assert model.find().number == 2
            assert states(model) == {1: State.UNLOADING, 2: State.AVAILABLE}
            assert old.model is served == "1 fine"
        while model.versions[1].state != State.END:
            await asyncio.sleep(0)
        assert old.model is None
        with pytest.raises(Refusal, match=r"Specific\(m, 1\)"):
            model.find(1)

    play(tmp_path, scenario)


def test_the_old_version_answers_while_the_new_one_loads(tmp_path):
    began, go = threading.Event(), threading.Event()

    def slowly(folder):
        if folder.name == "2":
            began.set()
            assert go.wait(10)
        return load(folder)

    async def scenario(models, model):
        put(tmp_path, 1)
        await models.start()
        put(tmp_path, 2)
        refreshing = asyncio.create_task(model.refresh())
        await asyncio.to_thread(began.wait, 10)
        assert states(model) == {1: State.AVAILABLE, 2: State.LOADING}
        assert model.find().number == 1
        assert models.is_loading
        go.set()
        await refreshing
        assert model.find().number == 2

    play(tmp_path, scenario, slowly)


def test_a_broken_version_is_skipped_until_its_files_change(tmp_path):
    async def scenario(models, model):
        put(tmp_path, 1)
        await models.start()
        put(tmp_path, 2, "broken")
        for _ in range(2):
            await model.refresh()
            assert model.find().number == 1
        assert "no graph" in model.versions[2].error
        (tmp_path / "2" / "saved_model.pb").write_text("mended")
        await model.refresh()
        assert model.find().model == "2 mended"

    said = play(tmp_path, scenario)
    assert len([line for line in said if "Skipped m version 2" in line]) == 1


@pytest.mark.parametrize("log_is_read", [True, False])
def test_whatever_is_wrong_the_server_looks_for_versions(tmp_path, log_is_read):
    class Never2(Policy):
        def choose(self, there):
            if max(there) == 2:
                raise ValueError("2 is not chosen")
            return super().choose(there)

    said = []

    def say(line):
        said.append(line)
        if len(said) > 1 and not log_is_read:
            raise BrokenPipeError

    async def scenario():
        config = ModelConfig("m", tmp_path, Never2())
        models = Models([config], load, say)
        model = models.by_name["m"]
        put(tmp_path, 1)
        await models.start()
        watching = asyncio.create_task(models.watch(0.001))
        try:
            async with asyncio.timeout(30):
                put(tmp_path, 2)
                while "ValueError: 2 is not chosen." not in said[-1]:
                    await asyncio.sleep(0.001)
                assert model.find().number == 1
                put(tmp_path, 3)
                while model.find().number != 3:
                    await asyncio.sleep(0.001)
        finally:
            watching.cancel()
            models.close()

    asyncio.run(scenario())


def test_after_a_restart_the_newest_that_works_is_served(tmp_path):
    async def scenario(models, model):
        put(tmp_path, 1)
        put(tmp_path, 2, "broken")
        await models.start()
        assert model.find().number == 1

    play(tmp_path, scenario)


def test_nothing_to_serve_is_an_error_that_says_what_is_missing(tmp_path):
    async def scenario(models, model):
        (tmp_path / "1").mkdir()  # not yet complete
        (tmp_path / "notes").mkdir()
        with pytest.raises(T2TLiteError, match="holds no version of m"):
            await models.start()

    play(tmp_path, scenario)


def test_versions_that_vanish_are_served_until_there_is_another(tmp_path):
    async def scenario(models, model):
        first = put(tmp_path, 1)
        await models.start()
        shutil.rmtree(first)
        await model.refresh()
        assert model.find().number == 1
        put(tmp_path, 2)
        await model.refresh()
        while 1 in model.versions:
            await asyncio.sleep(0)
            await model.refresh()
        assert states(model) == {2: State.AVAILABLE}

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(), {4}),
        (Policy(newest=2), {2, 4}),
        (Policy(newest=None), {1, 2, 4}),
        (Policy(only=frozenset({1, 3})), {1}),
    ],
)
def test_policies_choose_versions(tmp_path, policy, expected):
    async def scenario(models, model):
        for number in (1, 2, 4):
            put(tmp_path, number)
        await models.start()
        assert {v.number for v in model.available} == expected

    play(tmp_path, scenario, policy=policy)


def test_labels_name_versions(tmp_path):
    async def scenario(models, model):
        put(tmp_path, 1)
        put(tmp_path, 2)
        await models.start()
        assert model.find(label="stable").number == 1
        with pytest.raises(Refusal, match="label: new") as found:
            model.find(label="new")
        assert found.value.status == Status.INVALID_ARGUMENT

    play(tmp_path, scenario, policy=Policy(newest=None), labels={"stable": 1})


def test_unknown_models_are_not_found(tmp_path):
    async def scenario(models, model):
        for name, status in (
            ("n", Status.NOT_FOUND),
            ("", Status.INVALID_ARGUMENT),
        ):
            with pytest.raises(Refusal) as found:
                models.model(name)
            assert found.value.status == status

    play(tmp_path, scenario)


def test_numbers_that_no_proto_holds_are_no_versions(tmp_path):
    async def scenario(models, model):
        put(tmp_path, 1)
        put(tmp_path, 2**63)
        await models.start()
        assert states(model) == {1: State.AVAILABLE}

    play(tmp_path, scenario)
