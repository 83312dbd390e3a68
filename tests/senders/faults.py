"""Packet faults of a lossy network, reproducible by a seed."""

import random


class Faults:
    """Drops, duplicates, delays and corrupts packets, except for the first `spare`.

    `damage` returns a corrupted copy of a packet.
    """

    def __init__(self, seed=0, loss=0.0, duplicate=0.0, reorder=0.0, corrupt=0.0, spare=0, damage=None):
        self.random = random.Random(seed)
        self.probabilities = [loss, duplicate, reorder, corrupt]
        self.spare, self.damage = spare, damage
        self.count, self.waiting = 0, []
        self.lost = self.duplicated = self.delayed = self.corrupted = 0

    def __call__(self, packet):
        """Returns the packets to forward now."""
        self.count += 1
        kinds = ["lost", "duplicated", "delayed", "corrupted", "kept"]
        kind = self.random.choices(kinds, [*self.probabilities, 1 - sum(self.probabilities)])[0]
        if self.count <= self.spare:
            kind = "kept"
        out = []
        if kind == "lost":
            self.lost += 1
        elif kind == "duplicated":
            self.duplicated += 1
            out = [packet, packet]
        elif kind == "delayed":
            self.delayed += 1
            self.waiting.append((self.count + self.random.randint(1, 4), packet))
        elif kind == "corrupted":
            self.corrupted += 1
            out = [self.damage(packet, self.random)]
        else:
            out = [packet]
        out += [late for when, late in self.waiting if when <= self.count]
        self.waiting = [(when, late) for when, late in self.waiting if when > self.count]
        return out

    def drain(self):
        """Returns the packets that are still delayed."""
        waiting, self.waiting = self.waiting, []
        return [late for _, late in waiting]

    def apply(self, packets):
        """Returns the packets that arrive if these are sent, in the order of their arrival."""
        return [arrived for packet in packets for arrived in self(packet)] + self.drain()
