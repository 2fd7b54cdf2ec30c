"""Play schedules of the simulated world: ``python -m tests.cluster SEED`` shows one in full."""

import argparse
import gc
import itertools
import time

from tests.cluster.world import play


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("seed", type=int, help="the seed, or the first of several")
    parser.add_argument("--seconds", type=float, help="play one seed after the other for so long")
    arguments = parser.parse_args()
    if arguments.seconds is None:
        world = play(arguments.seed, is_traced=True)
        print(*world.lines, sep="\n")
        print(*(f"broken: {problem}" for problem in world.promises.broken), sep="\n")
        return
    gc.freeze()
    began, cpu = time.monotonic(), time.process_time()
    failed = 0
    for number in itertools.count(1):
        seed = arguments.seed + number - 1
        if broken := play(seed).promises.broken:
            failed += 1
            print(f"seed {seed}:", *broken, sep="\n  ", flush=True)
        if time.monotonic() - began > arguments.seconds:
            break
    cpu = time.process_time() - cpu
    print(f"{number} schedules, {failed} broken, {60 * number / cpu:.0f} a minute of processor time")


main()
