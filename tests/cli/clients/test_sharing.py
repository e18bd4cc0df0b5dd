"""Several clients on one machine are installed and undone in any order, and their owner edits files in between.

The following holds for every sequence of installing, undoing and editing:

1. Installing removes no server from any client: every client still has each of its servers, in its file or behind
   Toolcrib.
2. Undoing changes nothing for other clients: each has exactly the servers that it had before.
3. An undone client has its own entries again. If its file was not edited otherwise, it has the same bytes as before.
4. No server is lost: a server that its owner did not remove is in the file of a client or in a configuration.
5. When the last client is undone, a configuration that was not edited is again what it was before the first one.
6. A configuration stays while another client serves it, or while an earlier installation of this client serves it.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from toolcrib.cli.clients.file_changes import read, write
from toolcrib.cli.clients.install_plan import Survey, survey
from toolcrib.cli.clients.install_records import InstallRecords, carry_out, undo
from toolcrib.cli.clients.jsonc_document import JsoncDocument
from toolcrib.cli.clients.known_clients import CLIENTS, KnownClient, Scope, ServersPlace, Surroundings
from toolcrib.cli.clients.server_entries import served_file, serving

Servers = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Seat:
    """A client and the scope in which it stores servers."""

    name: str
    scope: Scope

    @property
    def client(self) -> KnownClient:
        return CLIENTS[self.name]

    def place(self, surroundings: Surroundings) -> ServersPlace:
        return self.client.places[self.scope](surroundings)


SEATS = [Seat(client.name, scope) for client in CLIENTS.values() for scope in client.places]


@dataclass
class Machine:
    """A temporary home with a project in it, in which every client has run."""

    home: Path
    surroundings: Surroundings = field(init=False)

    def __post_init__(self) -> None:
        (project := self.home / "code" / "shop").mkdir(parents=True)
        (project / ".git").mkdir()
        self.surroundings = Surroundings(self.home, project)
        for seat in SEATS:
            self.file(seat).parent.mkdir(parents=True, exist_ok=True)

    def file(self, seat: Seat) -> Path:
        return seat.place(self.surroundings).file

    def entries(self, seat: Seat) -> Servers:
        place = seat.place(self.surroundings)
        document = JsoncDocument(read(place.file).text)
        return document.at(place.section(document.value)) or {}

    def own(self, seat: Seat) -> Servers:
        """The servers in the client's file, without Toolcrib."""
        return {name: entry for name, entry in self.entries(seat).items() if serving(entry) is None}

    def reached(self, seat: Seat) -> Servers:
        """The servers that the client has: in its file, or behind Toolcrib."""
        found = self.own(seat)
        for entry in self.entries(seat).values():
            config = served_file(seat.client, seat.scope, self.file(seat), entry)
            if config is not None:
                found = self.served(config) | found
        return found

    def serves(self, seat: Seat) -> set[Path]:
        """The existing configurations that Toolcrib serves for the client."""
        found = (served_file(seat.client, seat.scope, self.file(seat), entry) for entry in self.entries(seat).values())
        return {config for config in found if config is not None and config.exists()}

    def served(self, config: Path) -> Servers:
        return JsoncDocument(read(config).text).at(["mcpServers"]) or {}

    def configs(self) -> Iterator[Path]:
        yield from self.home.glob(".config/toolcrib/**/*.json")
        yield from self.home.glob("code/shop/**/toolcrib.mcp.json")

    def change(self, seat: Seat, changes: Mapping[str, dict[str, Any] | None]) -> None:
        """Edit the client's file, as its owner does."""
        place = seat.place(self.surroundings)
        document = JsoncDocument(read(place.file).text)
        raw = {name: None if entry is None else json.dumps(entry) for name, entry in changes.items()}
        place.file.write_text(document.with_members(place.section(document.value), raw).text + "\n")

    def change_served(self, config: Path, changes: Mapping[str, dict[str, Any] | None]) -> None:
        raw = {name: None if entry is None else json.dumps(entry) for name, entry in changes.items()}
        config.write_text(JsoncDocument(read(config).text).with_members(["mcpServers"], raw).text)

    def records(self, seat: Seat) -> InstallRecords:
        return InstallRecords(self.home / ".local" / "share", seat.client, seat.scope, read(self.file(seat)))

    def survey(self, seat: Seat) -> Survey:
        return survey(
            seat.client,
            seat.scope,
            None,
            surroundings=self.surroundings,
            config_folder=self.home / ".config" / "toolcrib",
            command=["/opt/toolcrib"],
            shared_command=["toolcrib"],
        )

    def install(self, seat: Seat, *, move: bool = True) -> None:
        found = self.survey(seat)
        plan = found.plan(move=move)
        if plan.edits:
            carry_out(plan, self.records(seat), found.config)

    def enter(self, seat: Seat) -> None:
        """Write the entry for Toolcrib into the client's file, as its owner does, without the configuration."""
        for edit in self.survey(seat).plan(move=False).edits:
            if edit.change.path == self.file(seat):
                write(edit.change)

    def undo(self, seat: Seat) -> None:
        """Undo the last installation into the client."""
        records = self.records(seat)
        last = records.last()
        assert last is not None
        undo(records.undoing(last, self.surroundings))


@pytest.fixture(autouse=True, scope="module")
def quick() -> Generator[None]:
    """Skip disk synchronization and the search for installed plugins: both take longer than the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", id)
        patch.setattr("importlib.metadata.distributions", tuple)
        yield


@contextmanager
def unchanged_for_others(machine: Machine, seat: Seat) -> Generator[None]:
    others = [each for each in SEATS if each != seat]
    before = [(machine.reached(place), machine.serves(place)) for place in others]
    yield
    for place, had in zip(others, before, strict=True):
        assert (machine.reached(place), machine.serves(place)) == had, place


def server(name: str) -> dict[str, Any]:
    return {"command": name}


# -- every pair in every order ---------------------------------------------------------------------------------------

# Lower case is one client, upper case the other: first `i`nstalled, then `u`ndone.
ORDERS = ["iuIU", "iIuU", "iIUu", "IUiu", "IiUu", "IiuU"]


@pytest.mark.parametrize("order", ORDERS)
def test_two_clients_undone_in_any_order_lose_no_server_and_leave_no_configuration(order: str, tmp_path: Path) -> None:
    for i, (one, other) in enumerate(combinations(SEATS, 2)):
        machine = Machine(tmp_path / str(i))
        shared, seat_of = server("shared"), {"i": one, "u": one, "I": other, "U": other}
        machine.change(one, {"shared": shared, "mine": server("mine")})
        machine.change(other, {"theirs": server("theirs"), "shared": shared})
        before = {place: machine.file(place).read_bytes() for place in (one, other)}
        had = {place: machine.reached(place) for place in (one, other)}
        for step in order:
            seat = seat_of[step]
            if step in "iI":
                machine.install(seat)
                assert machine.own(seat) == {}
            else:
                with unchanged_for_others(machine, seat):
                    machine.undo(seat)
                assert machine.own(seat) == had[seat]
            for place in (one, other):
                assert had[place].items() <= machine.reached(place).items(), (order, one, other)
        if machine.file(one) != machine.file(other):
            assert {place: machine.file(place).read_bytes() for place in (one, other)} == before
        assert [*machine.configs()] == [], (order, one, other)


# -- any sequence ----------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["git", "time", "mail"])
PROGRAMS = st.sampled_from(["a", "b"])
# Clients share a configuration in the scope of the user.
THREE = st.permutations([seat for seat in SEATS if seat.scope is Scope.USER]) | st.permutations(SEATS)


class Owner:
    """Installs into three clients, undoes and edits, and checks the rules above after each step."""

    def __init__(self, machine: Machine, seats: Sequence[Seat]) -> None:
        self.machine, self.seats = machine, seats
        self.alive: set[tuple[str, str]] = set()
        """Servers by name and program that were added and not removed."""
        self.before: dict[Seat, list[tuple[bytes | None, Servers]]] = {seat: [] for seat in seats}
        """For each active installation: the client's file before it, and the servers that it moved out."""
        self.edited: set[Path] = set()
        """Files that were changed by something other than the installations of one client."""

    def do(self, what: str, seat: Seat, name: str, program: str) -> None:
        match what:
            case "add":
                self.add(seat, name, program)
            case "remove":
                self.remove(seat, name)
            case "change":
                self.change_configuration(name, program)
            case "enter":
                self.enter(seat)
            case "delete":
                self.delete_configuration()
            case "undo":
                self.undo(seat)
            case _:
                self.install(seat, move=what == "move")
        assert self.alive <= self.there()
        if not any(self.before.values()):
            by_hand = {config for each in self.seats for config in self.machine.serves(each)}
            assert {*self.machine.configs()} <= self.edited | by_hand

    def there(self) -> set[tuple[str, str]]:
        """The servers in the clients' files and in the configurations, by name and program."""
        found = [self.machine.own(each) for each in self.seats]
        found += [self.machine.served(config) for config in self.machine.configs()]
        return {(label, entry["command"]) for servers in found for label, entry in servers.items()}

    def add(self, seat: Seat, name: str, program: str) -> None:
        if name not in self.machine.reached(seat):
            self.machine.change(seat, {name: server(program)})
            self.alive.add((name, program))
            self.edited.add(self.machine.file(seat))

    def remove(self, seat: Seat, name: str) -> None:
        entry = self.machine.own(seat).get(name)
        if entry is not None:
            self.machine.change(seat, {name: None})
            self.alive.discard((name, entry["command"]))
            self.edited.add(self.machine.file(seat))

    def change_configuration(self, name: str, program: str) -> None:
        config = next(self.machine.configs(), None)
        if config is None:
            return
        entry = self.machine.served(config).get(name)
        self.machine.change_served(config, {name: server(program)})
        if entry is not None:
            self.alive.discard((name, entry["command"]))
        self.alive.add((name, program))
        self.edited.add(config)

    def enter(self, seat: Seat) -> None:
        self.machine.enter(seat)
        self.edited.add(self.machine.file(seat))

    def delete_configuration(self) -> None:
        config = next(self.machine.configs(), None)
        if config is not None:
            config.unlink()
            self.alive &= self.there()
            self.edited.add(config)

    def install(self, seat: Seat, *, move: bool) -> None:
        had = {each: self.machine.reached(each) for each in self.seats}
        data, own = read(self.machine.file(seat)).data, self.machine.own(seat)
        last = self.machine.records(seat).last()
        self.machine.install(seat, move=move)
        for each in self.seats:
            assert had[each].items() <= self.machine.reached(each).items(), each
        if self.machine.records(seat).last() != last:
            moved = {name: own[name] for name in own.keys() - self.machine.own(seat).keys()}
            self.before[seat].append((data, moved))
            self.note_change(seat)

    def undo(self, seat: Seat) -> None:
        if not self.before[seat]:
            return
        file, had, served = self.machine.file(seat), self.machine.reached(seat), self.machine.serves(seat)
        data, moved = self.before[seat].pop()
        with unchanged_for_others(self.machine, seat):
            self.machine.undo(seat)
        if file not in self.edited:
            assert read(file).data == data
        assert moved.items() <= self.machine.own(seat).items()
        if self.before[seat]:  # it is still installed
            assert {**had, **moved} == self.machine.reached(seat)
            assert served == self.machine.serves(seat)
        self.note_change(seat)

    def note_change(self, seat: Seat) -> None:
        """For other installations into the same file, this installation is an edit."""
        file = self.machine.file(seat)
        if any(self.machine.file(other) == file for other in self.seats if other != seat):
            self.edited.add(file)


STEPS = st.tuples(
    st.sampled_from(["move", "move", "keep", "undo", "undo", "add", "remove", "change", "enter", "delete"]),
    st.integers(0, 2),
    NAMES,
    PROGRAMS,
)


@given(
    THREE,
    st.lists(st.dictionaries(NAMES, PROGRAMS), min_size=3, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.lists(STEPS, max_size=15),
)
@example(SEATS, [{}] * 3, [False] * 3, [(what, 0, "git", "a") for what in ("move", "delete", "move", "undo")])
@example(SEATS, [{}] * 3, [False] * 3, [(what, 0, "git", "a") for what in ("move", "delete", "add", "move", "undo")])
@settings(max_examples=examples(60))
def test_any_sequence_of_installing_undoing_and_editing_follows_the_rules(
    seats: Sequence[Seat],
    servers: Sequence[Mapping[str, str]],
    entered: Sequence[bool],
    steps: Sequence[tuple[str, int, str, str]],
) -> None:
    """`entered`: the entry for Toolcrib was written by hand, before there was a configuration."""
    with TemporaryDirectory() as folder:
        owner = Owner(Machine(Path(folder)), seats[:3])
        for seat, programs in zip(owner.seats, servers, strict=True):
            for name, program in programs.items():
                owner.add(seat, name, program)
        for seat, is_entered in zip(owner.seats, entered, strict=True):
            if is_entered:
                owner.enter(seat)
        owner.edited.clear()
        for what, which, name, program in steps:
            owner.do(what, owner.seats[which], name, program)
        for seat in owner.seats:
            while owner.before[seat]:
                owner.do("undo", seat, "", "")
