"""Which patterns recurse: strongly connected components of the calls that clauses make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from checks.engine.clauses import Pattern
from checks.engine.effort import tick


@dataclass
class Components:
    """Numbers the recursive components as they are asked for. Tarjan's algorithm, with a stack of its own."""

    called: Callable[[Pattern], Iterable[Pattern]]
    _numbers: dict[Pattern, int | None] = field(default_factory=dict)
    _count: int = 0

    def number(self, pattern: Pattern) -> int | None:
        """The component that the pattern recurses in; None where it does not recurse."""
        if pattern not in self._numbers:
            self._find(pattern)
        return self._numbers[pattern]

    def _find(self, start: Pattern) -> None:
        order = {start: 0}
        low = {start: 0}
        stack = [start]
        on_stack = {start}
        work: list[tuple[Pattern, Iterator[Pattern]]] = [(start, iter(self.called(start)))]
        while work:
            tick()
            pattern, rest = work[-1]
            called = next(rest, None)
            if called is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[pattern])
                if low[pattern] == order[pattern]:
                    self._close(pattern, stack, on_stack)
            elif called in on_stack:
                low[pattern] = min(low[pattern], order[called])
            elif called not in order and called not in self._numbers:
                order[called] = low[called] = len(order)
                stack.append(called)
                on_stack.add(called)
                work.append((called, iter(self.called(called))))

    def _close(self, root: Pattern, stack: list[Pattern], on_stack: set[Pattern]) -> None:
        members = [stack.pop()]
        while members[-1] != root:
            members.append(stack.pop())
        on_stack.difference_update(members)
        is_recursive = len(members) > 1 or root in self.called(root)
        self._count += 1
        self._numbers.update(dict.fromkeys(members, self._count if is_recursive else None))
