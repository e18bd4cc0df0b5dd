"""`toolcrib login`, `logout` and `logins`: sign in to remote servers, and show who is signed in where."""

from __future__ import annotations

import sqlite3
import threading
import time
import webbrowser
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
import click

from toolcrib.cli.opened_catalog import default_grants
from toolcrib.cli.options import config_option, json_option
from toolcrib.cli.redirect_listener import HOST, PATH, RedirectListener, RedirectRefused
from toolcrib.cli.terminal_output import asynchronous, escape, plain, print_json, stderr, stdout
from toolcrib.config import ServerConfig, read_config
from toolcrib.core.errors import InvalidConfig, NotFound, SourceUnavailable
from toolcrib.core.placeholders import references_in
from toolcrib.core.principal import LOCAL
from toolcrib.core.values import did_you_mean
from toolcrib.secrets.keys import KeyUnavailable
from toolcrib.sources.mcp.oauth.credentials import login_command
from toolcrib.sources.mcp.oauth.grants import SIGN_IN_S, GrantStore, StoredGrant
from toolcrib.sources.mcp.server_spec import HttpServer

if TYPE_CHECKING:
    from rich.table import Table

    from toolcrib.sources.mcp.oauth.sign_in import Applicant, Finished, SignIns

_DEFAULT_PORT = 8763
"""The port of the redirect for a link that a different machine's browser opens. Nothing listens there."""

_for_option = click.option(
    "--for",
    "principal",
    metavar="NAME",
    default=LOCAL.id,
    show_default=True,
    help="The principal that signs in, if each principal has the server separately.",
)


@click.command()
@click.argument("server")
@config_option
@_for_option
@click.option("--no-browser", is_flag=True, help="Print the link, and ask for the address that the browser opens last.")
@json_option
@asynchronous
async def login(server: str, config: Path, principal: str, *, no_browser: bool, as_json: bool) -> None:
    """Sign in to SERVER of the configuration, in a browser.

    Toolcrib stores the tokens encrypted, and renews them before they expire. A running gateway uses them at once.
    """
    from toolcrib.sources.mcp.oauth.sign_in import Applicant, SignIns

    chosen, address = _server(config, server, principal)
    store = default_grants()
    who = Applicant(principal, chosen.name, address)
    with _failures(chosen.name, store):
        try:
            with anyio.fail_after(SIGN_IN_S):
                done = await (_by_hand if no_browser else _in_browser)(SignIns(store), store, who)
        except TimeoutError as error:
            late = f"No one signed in to `{chosen.name}` within {SIGN_IN_S / 60:g} minutes."
            raise SourceUnavailable(late) from error
    grant = done.grant
    if as_json:
        print_json(
            {
                "server": done.name,
                "principal": done.principal,
                "issuer": grant.issuer,
                "scope": grant.scope,
                "expires_at": _iso(grant.expires_at),
                "renewed_automatically": grant.refresh_token is not None,
            }
        )
        return
    stderr.print(plain(f"Signed in to {done.name} at {grant.issuer}."), markup=False)
    if grant.refresh_token is None:
        stderr.print(f"The issuer sent no refresh token, so the sign-in ends {_when(grant.expires_at)}.", markup=False)


@click.command()
@click.argument("server")
@_for_option
@json_option
@asynchronous
async def logout(server: str, principal: str, *, as_json: bool) -> None:
    """Remove the sign-in to SERVER, and revoke its tokens at the issuer if the issuer supports that."""
    from toolcrib.sources.mcp.oauth.issuer_requests import IssuerFailed
    from toolcrib.sources.mcp.oauth.sign_in import SignIns

    store = default_grants()
    with _failures(server, store):
        kept = store.all()
        found = [each for each in kept if each.name == server and each.key.principal == principal]
        if not found:
            names = {each.name for each in kept if each.key.principal == principal}
            raise NotFound(
                f"`{principal}` is not signed in to `{server}`{did_you_mean(server, names)}.",
                hints=["Run `toolcrib logins` to list the sign-ins."],
            )
        revoked, problems = 0, list[str]()
        for each in found:
            try:
                revoked += await SignIns(store).end(each.key)
            except IssuerFailed as failure:
                problems.append(failure.message)
    if as_json:
        print_json({"server": server, "principal": principal, "revoked": revoked == len(found), "problems": problems})
        return
    for problem in problems:
        stderr.print(plain(f"The tokens were removed here, but not revoked: {problem}"), markup=False, style="yellow")
    how = "and revoked at the issuer" if revoked == len(found) else "from this machine"
    stderr.print(plain(f"Signed out of {server}: the tokens were removed {how}."), markup=False)


@click.command()
@json_option
@asynchronous
async def logins(*, as_json: bool) -> None:
    """Show who is signed in to which server, with which permissions, and for how long. No token is shown."""
    store = default_grants()
    with _failures("", store):
        kept = store.all()
    now = time.time()
    if as_json:
        print_json({"logins": [_wire(each, now) for each in kept]})
    elif kept:
        stdout.print(_table(kept, now))
    else:
        stderr.print("There are no sign-ins.")


# -- ways to reach a person -------------------------------------------------------------------------------------------


async def _in_browser(sign_ins: SignIns, store: GrantStore, who: Applicant) -> Finished:
    """Open the link in a browser of this machine, and wait for the redirect."""
    with closing(_listener(store, who)) as listener:
        link = await sign_ins.begin(who, listener.redirect)
        stderr.print("Opening your browser. If it does not open, open this link on this machine:", markup=False)
        stderr.print(plain(link), markup=False, soft_wrap=True)
        # Some browsers return when they are closed, so nothing waits for this thread.
        threading.Thread(target=_open, args=(link,), name="browser", daemon=True).start()
        done: list[Finished] = []

        async def finish(answer: str) -> str:
            done.append(await _finished(sign_ins, answer, who))
            return f"You are signed in to {who.name}. You can close this window."

        await listener.answer(_state_of(link), finish)
        return done[0]


async def _by_hand(sign_ins: SignIns, store: GrantStore, who: Applicant) -> Finished:
    """Print the link, and read the address to which the issuer redirected a browser on any machine."""
    port = who.server.oauth.redirect_port or _port_before(store, who) or _DEFAULT_PORT
    redirect = f"http://{HOST}:{port}{PATH}"
    link = await sign_ins.begin(who, redirect)
    stderr.print("Open this link in a browser on any machine, and sign in:", markup=False)
    stderr.print(plain(link), markup=False, soft_wrap=True)
    stderr.print(
        f"After that, the browser cannot open a page at {redirect}. That is expected. Copy the whole address from its"
        " address bar, and paste it here.",
        markup=False,
    )
    while True:
        answer = await anyio.to_thread.run_sync(_asked, abandon_on_cancel=True)
        if _state_of(answer) == _state_of(link):
            return await _finished(sign_ins, answer, who)
        stderr.print(f"This is not the address. It begins with {redirect}?", markup=False)


async def _finished(sign_ins: SignIns, answer: str, who: Applicant) -> Finished:
    from toolcrib.sources.mcp.oauth.issuer_requests import IssuerFailed

    try:
        return await sign_ins.finish(answer, who.principal)
    except IssuerFailed as failure:
        raise RedirectRefused(failure.message) from failure


def _open(link: str) -> None:
    """Open `link` in a browser of this machine, or say that it has none."""
    try:
        is_open = webbrowser.open(link)
    except (webbrowser.Error, OSError):
        is_open = False
    if not is_open:
        stderr.print("There is no browser here. To use one on a different machine, pass --no-browser.")


def _asked() -> str:
    return str(click.prompt("Address", err=True)).strip()


def _listener(store: GrantStore, who: Applicant) -> RedirectListener:
    """Return a listener on the configured port, or on the one that Toolcrib registered, or else on any free one.

    Raises:
        InvalidConfig: the configured port is in use.
    """
    if port := who.server.oauth.redirect_port:
        try:
            return RedirectListener(port)
        except OSError as error:
            raise InvalidConfig(
                f"oauth.redirect_port: port {port} cannot be used: {error.strerror or error}"
            ) from error
    if (port := _port_before(store, who)) is not None:
        try:
            return RedirectListener(port)
        except OSError:
            pass  # Toolcrib registers again, with a different port
    return RedirectListener()


def _port_before(store: GrantStore, who: Applicant) -> int | None:
    """Return the port of the redirect that Toolcrib registered for an earlier sign-in, or None."""
    stored = store.get(who.key)
    client = None if stored is None else store.client(who.key, stored.issuer)
    return None if client is None else urlsplit(client.redirect).port


def _state_of(address: str) -> str:
    try:
        return parse_qs(urlsplit(address).query).get("state", [""])[0]
    except ValueError:
        return ""


# -- what was named ---------------------------------------------------------------------------------------------------


def _server(config: Path, name: str, principal: str) -> tuple[ServerConfig, HttpServer]:
    """Return the server called `name`, as `principal` gets it.

    Raises:
        NotFound: the configuration has no such server.
        InvalidConfig: a person cannot sign in to it.
    """
    read = read_config(config)
    source = read.source_names.get(name, name)
    known = {each.name: each for each in read.enabled}
    if source not in known:
        raise NotFound(f"{config} has no server `{name}`{did_you_mean(name, known)}.")
    server = known[source]
    own = server.of(principal)
    if server.isolation == "shared" and principal != LOCAL.id:
        raise InvalidConfig(
            f"All principals share `{source}` and its sign-in. Leave out `--for`, or set `isolation` to `principal`."
        )
    if own is None:
        raise InvalidConfig(f"`{principal}` has no access to `{source}`.")
    if own.problem is not None:
        raise InvalidConfig(f"{config}: {own.problem}.")
    if not isinstance(own.server, HttpServer):
        raise InvalidConfig(f"`{source}` is a program on this machine. It has no sign-in.")
    if references_in(own.server.url):
        raise InvalidConfig(f"The `url` of `{source}` contains a stored value, so Toolcrib cannot sign in to it.")
    if own.server.has_own_token:
        raise InvalidConfig(f"`{source}` has a token in its `headers`. Remove it to sign in instead.")
    if own.server.oauth.grant != "authorization_code":
        raise InvalidConfig(f"`{source}` has `grant` set to `client_credentials`, so it needs no person to sign in.")
    if not own.shares_sign_in:
        raise InvalidConfig(
            f"More than one person can use this gateway (`auth`). Set `toolcrib.sources.{source}.isolation`: to"
            " `principal` if each person signs in, or to `shared` if all of them use one sign-in."
        )
    return own, own.server


@contextmanager
def _failures(name: str, store: GrantStore) -> Generator[None]:
    """Turn the failures of a sign-in into errors of the command."""
    from toolcrib.sources.mcp.oauth.issuer_requests import IssuerFailed

    try:
        yield
    except (IssuerFailed, RedirectRefused) as failure:
        raise SourceUnavailable(f"Cannot sign in to `{name}`. {failure}") from failure
    except KeyUnavailable as error:
        raise InvalidConfig(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        raise InvalidConfig(f"{store.path}: {error}") from error


# -- what is shown ----------------------------------------------------------------------------------------------------


def _note(stored: StoredGrant, now: float) -> str:
    """Return what the person has to know, or to do."""
    grant = stored.grant
    again = f"run {login_command(stored.name, stored.key.principal)}"
    if grant is None:
        return f"cannot be opened: {again}"
    if stored.wanted:
        return f"the server wants more ({stored.wanted}): {again}"
    if grant.refresh_token is not None:
        return "renewed automatically"
    if grant.expires_at is None:
        return ""
    return f"expired: {again}" if grant.expires_at <= now else "not renewed"


def _wire(stored: StoredGrant, now: float) -> dict[str, object]:
    grant = stored.grant
    return {
        "server": stored.name,
        "principal": stored.key.principal,
        "issuer": stored.issuer,
        "scope": None if grant is None else grant.scope,
        "expires_at": None if grant is None else _iso(grant.expires_at),
        "renewed_automatically": grant is not None and grant.refresh_token is not None,
        "note": _note(stored, now),
    }


def _table(kept: tuple[StoredGrant, ...], now: float) -> Table:
    from rich.table import Table

    table = Table("server", "for", "issuer", "scope", "expires", "", box=None, header_style="dim", padding=(0, 3, 0, 0))
    for each in kept:
        grant = each.grant
        table.add_row(
            f"[bold]{escape(each.name)}[/]",
            escape(each.key.principal),
            escape(each.issuer),
            "" if grant is None else escape(grant.scope),
            "" if grant is None else _when(grant.expires_at),
            escape(_note(each, now)),
        )
    return table


def _iso(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")


def _when(at: float | None) -> str:
    return "at an unknown time" if at is None else f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M}"
