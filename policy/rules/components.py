"""Reachability and strongly connected components of a graph.

In `p -> q -> p, q -> r`, all three are reachable from p. p and q are in one component; r has no number, because only
components with a cycle are numbered.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)


def nothing() -> None:
    """Do nothing: the default for `step`."""


def reachable(
    starts: Iterable[Node], following: Callable[[Node], Iterable[Node]], step: Callable[[], None] = nothing
) -> list[Node]:
    """Return the starts and all nodes reachable from them, breadth first; call `step` for each."""
    found = dict.fromkeys(starts)
    queue = list(found)
    for node in queue:  # grows during the loop
        step()
        more = [each for each in dict.fromkeys(following(node)) if each not in found]
        found.update(dict.fromkeys(more))
        queue += more
    return queue


@dataclass
class Components(Generic[Node]):
    """Finds and numbers components on demand, with an iterative version of Tarjan's algorithm.

    `step` is called at each step; it may raise an exception to abort a search that takes too long.
    """

    following: Callable[[Node], Iterable[Node]]
    step: Callable[[], None] = nothing
    _numbers: dict[Node, int | None] = field(default_factory=dict)
    _members: dict[int, tuple[Node, ...]] = field(default_factory=dict)

    def number(self, node: Node) -> int | None:
        """Return the number of the node's component; None if the node is on no cycle."""
        if node not in self._numbers:
            self._find(node)
        return self._numbers[node]

    def members(self, number: int) -> tuple[Node, ...]:
        """Return the nodes of a component."""
        return self._members[number]

    def _find(self, start: Node) -> None:
        order = {start: 0}
        low = {start: 0}
        stack = [start]
        on_stack = {start}
        work: list[tuple[Node, Iterator[Node]]] = [(start, iter(self.following(start)))]
        while work:
            self.step()
            node, rest = work[-1]
            target = next(rest, None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    self._close(node, stack, on_stack)
            elif target in on_stack:
                low[node] = min(low[node], order[target])
            elif target not in order and target not in self._numbers:
                order[target] = low[target] = len(order)
                stack.append(target)
                on_stack.add(target)
                work.append((target, iter(self.following(target))))

    def _close(self, root: Node, stack: list[Node], on_stack: set[Node]) -> None:
        members = [stack.pop()]
        while members[-1] != root:
            members.append(stack.pop())
        on_stack.difference_update(members)
        is_recursive = len(members) > 1 or root in self.following(root)
        number = len(self._members) + 1
        self._members[number] = tuple(members)
        self._numbers.update(dict.fromkeys(members, number if is_recursive else None))
