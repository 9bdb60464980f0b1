#!/usr/bin/env python3
"""Starts a program of this folder on 1 to 5 ranks under mpirun; it says what it catches. With a
word and a text the program, given the word, must also end two ranks with that text.

on_ranks_test.py BINARY PROGRAM [WORD TEXT]
"""
import sys

import lockstep_run


def main(program, word=None, text=None):
    failures = 0
    for ranks in (1, 2, 3, 4, 5):
        done = lockstep_run.run(program, [], ranks, limit_s=120)
        print(f"{ranks} ranks: exit code {done.returncode}")
        if done.returncode != 0:
            print(done.stdout, done.stderr)
            failures += 1
    if word:
        done = lockstep_run.run(program, [word], 2, limit_s=120)
        print(f"{word}: exit code {done.returncode}")
        if done.returncode == 0 or text not in done.stderr:
            print(done.stdout, done.stderr)
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    if not lockstep_run.have_mpirun():
        print("skipped: no mpirun")
        sys.exit(77)
    sys.exit(main(*sys.argv[2:]))
