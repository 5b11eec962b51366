"""A process that is killed while it saves: the old file or the new one is there whole, never neither.

What is promised: whenever ``save`` is cut off, by a kill or a power cut, the file is the old one or the new one;
once it has returned, the file is the new one. Here processes are killed; tests/test_files.py has the order of
writes to the disk. A killed process may leave a file ".<32 hexadecimal digits><suffix>" beside the target.
"""

import json
import re

import pytest

from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere, load

LEFTOVER = re.compile(r"\.[0-9a-f]{32}\.safetensors")

# Runs in a process that has loaded the library: copies of it save, and are killed.
KILLS = """
import json, mmap, os, random, signal, sys, time
from pathlib import Path
import manifoldrf

models = [manifoldrf.load(f"{k}.safetensors") for k in range(2)]
whole = [Path(f"{k}.safetensors").read_bytes() for k in range(2)]
target = Path("target/m.safetensors")
found = dict.fromkeys(("new", "old", "broken", "left_whole", "left_loaded", "killed", "inside"), 0)
found["left"] = []


def content():
    return target.read_bytes() if target.exists() else None


def look(old, new):
    found["old" if content() == old else "new" if content() == new else "broken"] += 1
    for path in set(target.parent.iterdir()) - {target}:
        found["left"].append(path.name)
        if path.read_bytes() in whole:
            found["left_whole"] += 1
        else:
            try:
                manifoldrf.load(path)
                found["left_loaded"] += 1
            except manifoldrf.ModelFileError:
                pass
        path.unlink()


def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def end(pid):
    found["killed"] += os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def at_random(n, seed):
    # The saves that the child began and those that returned: they say what may be there, however fast it was.
    counts = memoryview(mmap.mmap(-1, 16)).cast("q")
    rng = random.Random(seed)
    start = time.perf_counter()
    for k in range(10):
        models[k % 2].save(target)
    longest = 6 * (time.perf_counter() - start) / 10

    def forever():
        while True:
            counts[0] += 1
            models[counts[0] % 2].save(target)
            counts[1] += 1

    while found["inside"] < n:
        if found["inside"] % 10 == 0:
            target.unlink(missing_ok=True)
        counts[0] = counts[1] = 0
        before = content()
        pid = child(forever)
        while counts[0] == 0:
            time.sleep(0)
        time.sleep(longest * rng.random())
        os.kill(pid, signal.SIGKILL)
        end(pid)
        begun, done = counts
        found["inside"] += begun > done
        look(before if done == 0 else whole[done % 2], whole[begun % 2])


def at_line(number):
    left, writing = number, False  # what is encoded before touches no file

    def trace(frame, event, _):
        nonlocal left, writing
        if not frame.f_code.co_filename.endswith(("_files.py", "_codec.py")):
            return None
        writing = writing or frame.f_code.co_name == "write_container"
        if event == "line" and writing:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    models[1].save(target)


def at_every_line():
    number = killed = 0
    while killed == found["killed"]:
        target.write_bytes(whole[0])
        end(child(lambda: at_line(number)))
        look(whole[0], whole[1])
        number, killed = number + 1, killed + 1
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of two models, and of one to save them in."""
    place = tmp_path_factory.mktemp("kills")
    (place / "target").mkdir()
    for k, t in enumerate((0.3, 0.5)):
        features = ManifoldRandomFeatures(HeatKernel(t), random_state=0).fit(Sphere().grid(300 + 40 * k))
        features.save(place / f"{k}.safetensors")
        load(place / f"{k}.safetensors").save(place / f"{k}.safetensors")  # bytes that are the same ever after
    return place


def killed(program, folder, call):
    done = program.run(cwd=folder, code=f"{KILLS}\n{call}\nprint(json.dumps(found))")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["broken"] == 0
    assert found["left_loaded"] == 0  # what is half-written is never taken for a model
    assert all(LEFTOVER.fullmatch(name) for name in found["left"])
    return found


@pytest.mark.parametrize("n", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_kill_at_a_random_moment_leaves_the_old_file_or_the_new_one(program, models, n):
    found = killed(program, models, f"at_random({n}, 0)")
    assert found["inside"] == n
    assert found["killed"] == found["old"] + found["new"] >= n


@pytest.mark.slow
def test_a_kill_before_any_line_of_a_save_leaves_the_old_file_or_the_new_one(program, models):
    found = killed(program, models, "at_every_line()")
    assert found["killed"] > 50
    assert found["old"] > 20
    assert found["new"] > 1
    assert len(found["left"]) > found["left_whole"] > 0  # the middle of writing was hit, and the time after it
