"""Figures of several programs, measured in turn, and their ratios: what `rdma.py` and `spacefibre.py` share."""

import argparse
from dataclasses import dataclass, field
from statistics import median

from common import RECEIVE_CPU, SEND_CPU, Failed, foreground, json_of, program, say

OURS = "shotline "


@dataclass
class Contender:
    """A program that gives one figure per round."""

    name: str
    unit: str
    run: object
    figures: list = field(default_factory=list)
    failures: int = 0

    def step(self):
        try:
            figure = self.run()
        except (Failed, OSError) as error:
            self.failures += 1
            say(f"  FAILED {self.name}: {error}")
        else:
            self.figures.append(figure)
            say(f"  {self.name}: {figure:.3f} {self.unit}")

    def median(self):
        return median(self.figures)


@dataclass
class Ratio:
    """Ratio of ours to the best of several peers, or to a target. Above 1, ours is better."""

    name: str
    ours: Contender
    peers: list = field(default_factory=list)
    limit: tuple = ()
    less_is_better: bool = False

    def show(self, contenders):
        ran = [contenders[peer.name] for peer in self.peers if contenders[peer.name].figures]
        figures = [(peer.median(), peer.name) for peer in ran] or ([self.limit] if self.limit else [])
        ours = contenders[self.ours.name]
        if not figures or not ours.figures:
            say(f"NO RATIO {self.name}: {self.ours.name if figures else 'the peer'} gave no figure")
            return False
        best, peer = min(figures) if self.less_is_better else max(figures)
        value = best / ours.median() if self.less_is_better else ours.median() / best
        say(f"RATIO {self.name} {value:.3f} (ours {ours.median():.3f} {ours.unit}, {peer} {best:.3f} {ours.unit})")
        return True


def parser(description, seconds):
    """Returns a parser with the options of [`run`], and `--seconds`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=5, help="rounds, with one run of each contender")
    parser.add_argument("--seconds", type=float, default=seconds, help="length of a run")
    parser.add_argument("--only", nargs="+", default=[""], metavar="START", help="ratios with one of these prefixes")
    parser.add_argument("--peers", action="store_true", help="run only the peers, without ratios")
    return parser


def run(ratios, args):
    """Runs the contenders of the chosen ratios in turn, prints the ratios, and returns the exit status."""
    ratios = [ratio for ratio in ratios if ratio.name.startswith(tuple(args.only))]
    contenders = {}  # each once, also if it is in several ratios
    for ratio in ratios:
        for contender in [*ratio.peers, ratio.ours]:
            if not (args.peers and contender.name.startswith(OURS)):
                contenders.setdefault(contender.name, contender)
    for number in range(args.rounds):
        say(f"round {number + 1} of {args.rounds}")
        for contender in contenders.values():
            contender.step()
    say("")
    if args.peers:
        for contender in contenders.values():
            say(f"{contender.name}: {contender.median():.3f} {contender.unit}" if contender.figures else contender.name)
    printed = [ratio.show(contenders) for ratio in ratios] if not args.peers else []
    return 0 if all(printed) and not any(contender.failures for contender in contenders.values()) else 1


def perf(verb, transport, *words):
    """Runs `shotline perf`, which starts its own target process."""
    command = [*(program(), "perf", verb, "--json", "--transport", transport), *map(str, words)]
    return json_of(foreground([*command, "--cpu", str(SEND_CPU), "--target-cpu", str(RECEIVE_CPU)]))
