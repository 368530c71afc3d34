"""Every answer of a server under load, against what it should be."""

import asyncio
import contextlib
import random
import subprocess
import sys
import time

from serving_clients import (
    CLIENTS,
    Clients,
    closed_loop,
    grpc_request,
    make_texts,
    newest,
    percentile,
    running,
)

MALFORMED = (
    ("{", 400),
    ('{"instances": [1]}', 400),
    ('{"instances": []}', 400),
    ('{"inputs": {"other": ["a"]}}', 400),
    ('{"instances": ["a"], "signature_name": "none"}', 400),
)


def decoded(args, texts):
    """What the decoder says, or the export asked one by one."""
    if args.output_dir:
        words = [sys.executable, "-m", "t2t_lite.bin.decoder"]
        done = subprocess.run(
            [*words, f"--output_dir={args.output_dir}"],
            input="\n".join(texts) + "\n",
            capture_output=True,
            text=True,
            check=True,
        )
        lines = done.stdout.splitlines()
    else:
        code = (
            "import sys, tensorflow as tf, tensorflow_text\n"
            "model = tf.saved_model.load(sys.argv[1])\n"
            "ask = model.signatures['serving_default']\n"
            "for line in sys.stdin.read().splitlines():\n"
            "    out = ask(inputs=tf.constant([line]))['outputs']\n"
            "    print(out.numpy()[0].decode())\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(newest(args.export_dir))],
            input="\n".join(texts),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        lines = done.stdout.splitlines()
    assert len(lines) == len(texts)
    return dict(zip(texts, lines, strict=True))


async def measure_load(args):
    """Every answer is compared with what it should be."""
    texts = make_texts()
    expected = decoded(args, texts)
    with running(args.export_dir) as server:
        clients = await Clients().open(server)
        counts = dict.fromkeys(("right", "refused", "cancelled", "wrong"), 0)
        seconds, memory, wrong = [], [], []
        numbers = iter(range(args.requests))
        draw = random.Random(2)

        async def one(client, number):
            ask = clients.rest if client % 2 else clients.grpc
            text = draw.choice(texts)
            if number % 100 == 0:
                await refused(clients, client, number, counts, wrong)
            elif number % 100 == 50:
                task = asyncio.create_task(ask([text]))
                await asyncio.sleep(draw.random() / 50)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                counts["cancelled"] += 1
            else:
                start = time.perf_counter()
                status, answer = await ask([text])
                seconds.append(time.perf_counter() - start)
                right = status == 200 and answer == [expected[text]]
                counts["right" if right else "wrong"] += 1
                if not right:
                    wrong.append((text, status, answer, expected[text]))
            if number % 250 == 249:
                memory.append(await clients.memory())

        async def ask(client):
            for number in numbers:
                await one(client, number)

        took = await closed_loop(CLIENTS, ask)
        await clients.close()
    warm = memory[3 * len(memory) // 10 :]
    print(f"load: {args.requests} requests in {took:.1f} s: {counts}")
    for each in wrong[:5]:
        print(f"  wrong: {each}")
    print(
        f"  p50 {percentile(seconds, 50):.1f} ms, "
        f"p99 {percentile(seconds, 99):.1f} ms; memory "
        f"{memory[0]:.0f} MB at first, "
        f"{warm[0]:.0f} after three tenths, then {min(warm):.0f} to "
        f"{max(warm):.0f}, at the end {warm[-1]:.0f} MB"
    )


async def refused(clients, client, number, counts, wrong):
    """Sends something malformed, and looks for its status and one line."""
    if client % 2:
        body, expected = MALFORMED[number // 100 % len(MALFORMED)]
        found = await clients.rest(None, body)
    else:
        request, expected = grpc_request(["a"]), "NOT_FOUND"
        request.model_spec.name = "none"
        found = await clients.grpc(None, request)
    right = found[0] == expected and "\n" not in found[1]
    counts["refused" if right else "wrong"] += 1
    if not right:
        wrong.append((number, *found))
