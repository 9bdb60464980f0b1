#!/usr/bin/env python3
"""The time of PyTorch's all_reduce of floats over gloo, measured as mpi_allreduce.cc does MPI's:
what `lockstep bench collectives` is compared with.

    mpirun -n RANKS torch_allreduce.py MEETING_FILE REPEATS BYTES...

Rank 0 prints, for each size, the bytes and the median microseconds of the slowest rank.
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist


def slowest(seconds):
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return value.item()


def time_once(vector, times):
    """Seconds of one all-reduce of `times` in a row, on the slowest rank, which has just written
    its vector anew."""
    vector.zero_()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(times):
        dist.all_reduce(vector)
    return slowest((time.perf_counter() - start) / times)


def main():
    meet, repeats, sizes = sys.argv[1], int(sys.argv[2]), [int(size) for size in sys.argv[3:]]
    rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=ranks)
    for size in sizes:
        vector = torch.zeros(size // 4)
        time_once(vector, 1)
        times = min(max(int(1e-3 / time_once(vector, 3)), 1), 10000)
        median = statistics.median(time_once(vector, times) for _ in range(repeats))
        if rank == 0:
            print(f"{size} {median * 1e6:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
