"""The events of a running series, by key, and what changed since last asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pilot.series.types import Event


class Book:
    """Events by key, in the order they were opened."""

    def __init__(self) -> None:
        self._events: dict[int, Event] = {}
        self.changed: dict[int, None] = {}
        self._next = 0

    def open(self, event: Event) -> int:
        """Enter a new event; its key."""
        key = self._next
        self._next += 1
        self._events[key] = event
        self.changed[key] = None
        return key

    def put(self, key: int, event: Event) -> None:
        """Replace the event under ``key``; nothing happens when it is the same."""
        if self._events.get(key) != event:
            self._events[key] = event
            self.changed[key] = None

    def change(self, key: int, **fields: Any) -> None:
        """Replace fields of the event under ``key``."""
        self.put(key, replace(self._events[key], **fields))

    def get(self, key: int) -> Event:
        """The event under ``key``."""
        return self._events[key]

    def items(self) -> list[tuple[int, Event]]:
        """All keys and events."""
        return list(self._events.items())

    def events(self) -> tuple[Event, ...]:
        """All events, in order of first step, then of opening."""
        return tuple(sorted(self._events.values(), key=lambda event: event.first_step))

    def flush(self) -> tuple[Event, ...]:
        """The events that were opened or changed since the last call."""
        if not self.changed:
            return ()
        changed = tuple(self._events[key] for key in self.changed)
        self.changed.clear()
        return changed
