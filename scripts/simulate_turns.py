#!/usr/bin/env python3
"""Simulates the turns of backward's pass (src/cuda/metric_backward_pass.h): the time that blocks wait for one another.

  scripts/simulate_turns.py                        causal, 32 pairs of sequence and head, 264 blocks at a time
  scripts/simulate_turns.py --pairs 384 --hand-on 0.2

A block owns a tile of keys and goes over the tiles of queries that see it. Computing a tile takes the time 1, handing its
part of dq to the next block --hand-on. A block may only add to a tile after the block of the keys before. The table has
the time of the pass for both orders of the tiles, in units of the time without turns. It is a model, not a measurement.
"""
import argparse
import heapq


def pass_time(tiles, pairs, resident, hand_on, backwards, turns):
    """The time until the last block ends. `tiles`: the number of tiles of keys, and of tiles of queries, of a pair."""
    added = {}  # (pair, query tile): when the newest block had added
    free = [0.0] * resident
    end = 0.0
    # Blocks begin in the order of their numbers: a block that waits does so for blocks that were simulated before it.
    for key in range(tiles):
        for pair in range(pairs):
            now = heapq.heappop(free)
            first = 0 if key == 0 else key
            for query in reversed(range(first, tiles)) if backwards else range(first, tiles):
                now += 1
                if turns:
                    now = max(now, added.get((pair, query), 0.0)) + hand_on
                    added[pair, query] = now
                else:
                    now += hand_on
            heapq.heappush(free, now)
            end = max(end, now)
    return end


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=32, help="sequences times heads")
    parser.add_argument("--resident", type=int, default=264, help="blocks at a time: two on each of 132 multiprocessors")
    parser.add_argument("--hand-on", type=float, default=0.3, help="in units of the computation of a tile")
    a = parser.parse_args()
    print(f"{'tokens':>6} {'first to last':>14} {'last to first':>14} {'change':>7}")
    for tokens in (128, 256, 512, 1024, 2048, 4096):
        tiles = tokens // 64
        plain = min(pass_time(tiles, a.pairs, a.resident, a.hand_on, order, False) for order in (False, True))
        forwards, backwards = (pass_time(tiles, a.pairs, a.resident, a.hand_on, order, True) for order in (False, True))
        print(f"{tokens:6} {forwards / plain:14.2f} {backwards / plain:14.2f} {100 * (backwards / forwards - 1):6.0f}%")


if __name__ == "__main__":
    main()
