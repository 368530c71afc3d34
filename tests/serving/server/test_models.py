"""Loading, replacing and removing model versions."""

import asyncio
import shutil
import threading

import pytest

from support.served_model import save
from t2t_lite.errors import T2TLiteError
from t2t_lite.serving.options import ServerOptions
from t2t_lite.serving.server.model import Model, Version, load_version
from t2t_lite.serving.server.requests import ApiError


def put(folder, number, text="fine"):
    """Write a version as the exporter does: rename it when complete."""
    hidden = folder / ".hidden"
    hidden.mkdir()
    (hidden / "saved_model.pb").write_text(text)
    return hidden.rename(folder / str(number))


def load(folder):
    text = (folder / "saved_model.pb").read_text()
    if text == "broken":
        raise ValueError("no graph")
    return Version(int(folder.name), {}, text)


def states(model):
    found = model.status("m").model_version_status
    return {each.version: each.state for each in found}


@pytest.fixture
def log():
    return []


@pytest.fixture
def model(tmp_path, log):
    return Model(
        ServerOptions(tmp_path, "m", file_system_poll_wait_seconds=0.01),
        None,
        load,
        log.append,
    )


def test_newest_version_is_served_until_a_newer_one_is_added(tmp_path, model):
    put(tmp_path, 1)
    put(tmp_path, 2)
    asyncio.run(model.start())
    assert model.find("m").number == model.find("m", 2).number == 2
    put(tmp_path, 10)
    asyncio.run(model.refresh())
    assert model.find("m").number == 10
    assert set(states(model)) == {10}


def test_old_version_stays_active_while_the_new_one_loads(tmp_path, model):
    began, go = threading.Event(), threading.Event()

    def load_slowly(folder):
        began.set()
        assert go.wait(10)
        return load(folder)

    async def scenario():
        put(tmp_path, 1)
        await model.start()
        put(tmp_path, 2)
        model.load = load_slowly
        refreshing = asyncio.create_task(model.refresh())
        await asyncio.to_thread(began.wait, 10)
        assert model.find("m").number == 1
        assert states(model) == {1: 30, 2: 20}  # AVAILABLE, LOADING
        go.set()
        await refreshing
        assert model.find("m").number == 2

    asyncio.run(scenario())


def test_a_broken_version_is_skipped_until_its_files_change(
    tmp_path, model, log
):
    put(tmp_path, 1)
    put(tmp_path, 2, "broken")
    asyncio.run(model.start())
    asyncio.run(model.refresh())
    assert model.find("m").number == 1
    assert states(model)[2] == 50  # END
    assert len([line for line in log if "no graph" in line]) == 1
    (tmp_path / "2" / "saved_model.pb").write_text("mended")
    asyncio.run(model.refresh())
    assert model.find("m").metadata == "mended"
    put(tmp_path, 3)
    asyncio.run(model.refresh())
    shutil.rmtree(tmp_path / "2")
    asyncio.run(model.refresh())
    assert sorted(states(model)) == [3]


def test_deleted_version_is_served_until_another_is_available(tmp_path, model):
    put(tmp_path, 1)
    newest = put(tmp_path, 2)
    asyncio.run(model.start())
    shutil.rmtree(newest)
    asyncio.run(model.refresh())
    assert model.find("m").number == 1  # falls back to the previous version
    shutil.rmtree(tmp_path / "1")
    asyncio.run(model.refresh())
    assert model.find("m").number == 1


@pytest.mark.parametrize("closed", [False, True])
def test_version_watcher_survives_errors_and_a_closed_log(
    tmp_path, model, log, closed
):
    def write(line):
        log.append(line)
        if closed and len(log) > 1:
            raise BrokenPipeError

    async def scenario():
        put(tmp_path, 1)
        model.log = write
        await model.start()
        watching = asyncio.create_task(model.watch())
        tmp_path.rename(tmp_path.with_name("away"))
        async with asyncio.timeout(30):
            while "No such file" not in log[-1]:
                await asyncio.sleep(0.001)
            tmp_path.with_name("away").rename(tmp_path)
            put(tmp_path, 2)
            while model.find("m").number != 2:
                await asyncio.sleep(0.001)
        watching.cancel()

    asyncio.run(scenario())


def test_a_folder_without_a_version_is_an_error(tmp_path, model):
    (tmp_path / "1").mkdir()  # incomplete
    (tmp_path / "notes").mkdir()
    put(tmp_path, 2**63)  # does not fit in int64
    with pytest.raises(T2TLiteError, match="`model_base_path"):
        asyncio.run(model.start())
    put(tmp_path, 1, "broken")
    with pytest.raises(T2TLiteError, match="saved_model.pb"):
        asyncio.run(model.start())


def test_a_version_whose_warmup_request_fails_is_not_loaded(tmp_path):
    save(tmp_path / "1", warmup=b"whisper")
    with pytest.raises(ApiError, match="we do not whisper"):
        load_version(tmp_path / "1")
