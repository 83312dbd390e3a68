"""Packet faults of a bad network, reproducible by a seed."""

import random


class Faults:
    """Drops, duplicates, delays and corrupts packets, except for the first `spare`.

    `damage` makes a corrupted packet of a good one.
    """

    def __init__(self, seed=0, loss=0.0, duplicate=0.0, reorder=0.0, corrupt=0.0, spare=0, damage=None):
        self.random = random.Random(seed)
        self.chances = [loss, duplicate, reorder, corrupt]
        self.spare, self.damage = spare, damage
        self.count, self.waiting = 0, []
        self.lost = self.doubled = self.delayed = self.corrupted = 0

    def __call__(self, packet):
        """Returns the packets to send on now."""
        self.count += 1
        kinds = ["lost", "doubled", "delayed", "corrupted", "kept"]
        kind = self.random.choices(kinds, [*self.chances, 1 - sum(self.chances)])[0]
        if self.count <= self.spare:
            kind = "kept"
        out = []
        if kind == "lost":
            self.lost += 1
        elif kind == "doubled":
            self.doubled += 1
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
        """Returns all packets that arrive of these packets."""
        return [onward for packet in packets for onward in self(packet)] + self.drain()
