"""`toolcrib serve`."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import platformdirs

from toolcrib.cli.approvals import default_approvals
from toolcrib.cli.opening import default_vectors, pins_of, told_of_hidden
from toolcrib.cli.output import fail, log_warnings, plain, run, stderr
from toolcrib.cli.places import store_of
from toolcrib.config import Config, read_config
from toolcrib.core.errors import BundleIncomplete, InvalidConfig, NotFound
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.core.values import did_you_mean
from toolcrib.crib import Toolcrib
from toolcrib.stores.approvals import ApprovalStore
from toolcrib.stores.audit import AuditStore
from toolcrib.stores.audit_file import DAY_S
from toolcrib.stores.definitions import DefinitionStore
from toolcrib.stores.redaction import Redaction
from toolcrib.stores.vectors import VectorStore

logger = logging.getLogger(__name__)

_PROGRAM = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")
"""`package.module:name`."""


def serve(
    config: Path,
    http: str | None,
    operations: str,
    cache: Path | None,
    *,
    bundle: str | None,
    no_cache: bool,
    no_audit: bool,
) -> None:
    """Serve until a signal arrives; over standard input and output, until the client goes away.

    `config` may name the crib of a program instead, as `module:name`.
    """
    if (named := _PROGRAM.fullmatch(str(config))) is not None and not config.exists():
        _serve_program(named[1], named[2], http, operations, bundle=bundle)
        return
    if (module := _module_meant(config)) is not None:
        told = f"{config}: this is a Python module; name the `Toolcrib` in it too, as in `{module}:crib`"
        fail(InvalidConfig(told), as_json=False)
    config = _in_project(config)
    log_warnings()
    definitions = None if no_cache else DefinitionStore(cache or default_cache())
    vectors = None if no_cache else VectorStore(default_vectors())

    def opened(audit: AuditStore | None) -> Toolcrib:
        return Toolcrib(
            definitions=definitions,
            approvals=ApprovalStore(default_approvals()),
            registrations=store_of(config),
            pins=pins_of(config),
            vectors=vectors,
            record=None if audit is None else audit.record,
        )

    def kept_within(crib: Toolcrib, principal: Principal | None) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Keep `crib` within the bundle, if any is named; gives what tells of what is missing in that."""
        if bundle is None:
            return None
        crib.confine(bundle)
        return partial(_tell_if_incomplete, crib, bundle, principal)

    async def over_pipes() -> None:
        from toolcrib.surfaces.mcp_gateway.stdio import serve_stdio

        if sys.stdin.isatty():
            stderr.print("Toolcrib speaks MCP here, to a program: give it to your client. Ctrl-C ends it.")
        with audited(config, no_audit=no_audit) as audit:
            crib = opened(audit)
            read = crib.add_config(config)
            _look_for_garbage()
            told_of_bundle = kept_within(crib, LOCAL)

            async def beside() -> None:
                if told_of_bundle is not None:
                    await told_of_bundle()
                await _warn_if_hidden(crib, read)

            await serve_stdio(crib, read, exposed=operations, beside=beside)

    async def over_http() -> None:
        from toolcrib.surfaces.http.names import Address
        from toolcrib.surfaces.http.serving import serve_http

        address = Address.parse(http or "")
        with audited(config, no_audit=no_audit) as audit:
            crib = opened(audit)
            read = crib.add_config(config)
            _look_for_garbage()
            await serve_http(
                crib,
                read,
                address,
                _say_where,
                exposed=operations,
                audit_events_lost=lambda: 0 if audit is None else audit.condition.lost,
                beside=kept_within(crib, None if read.auth.is_required else LOCAL),
            )

    with closing(vectors) if vectors is not None else nullcontext():
        run(over_http if http else over_pipes, as_json=False)


def _module_meant(config: Path) -> str | None:
    """The module in the current folder that `config` names, as `package.module` or by its file; None for no module."""
    named = str(config).removesuffix(".py").replace(os.sep, ".")
    file = Path(*named.split("."))
    if not _PROGRAM.fullmatch(f"{named}:crib") or (config.exists() and config.suffix != ".py"):
        return None
    return named if file.with_suffix(".py").is_file() or (file / "__init__.py").is_file() else None


def _serve_program(module: str, name: str, http: str | None, operations: str, *, bundle: str | None) -> None:
    """Serve the crib that a module holds; what it keeps and writes down is its own business."""
    log_warnings()

    async def main() -> None:
        crib = _crib_of(module, name)
        if bundle is not None:
            crib.confine(bundle)
        if http is None:
            if sys.stdin.isatty():
                stderr.print("Toolcrib speaks MCP here, to a program: give it to your client. Ctrl-C ends it.")
            await crib.serve_stdio(operations=operations)
        else:
            await crib.serve_http(http, operations=operations, listening=_say_where)

    gc.enable()
    run(main, as_json=False)


def _crib_of(module: str, name: str) -> Toolcrib:
    """The crib that is called `name` in a module, looked for in the current folder first.

    Raises:
        NotFound: there is no such module, or it has no crib of this name; the nearest is proposed.
    """
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or f"{module}.".startswith(f"{error.name}."):
            raise NotFound(f"there is no module `{module}`, here or among what is installed") from error
        raise
    cribs = [key for key, value in vars(found).items() if isinstance(value, Toolcrib)]
    crib = getattr(found, name, None)
    if not isinstance(crib, Toolcrib):
        meant = did_you_mean(name, cribs) or (f"; there are: {', '.join(cribs)}" if cribs else "")
        raise NotFound(f"`{module}` has no `Toolcrib` that is called `{name}`{meant}")
    return crib


def _say_where(url: str) -> None:
    stderr.print(f"Toolcrib serves {url}", markup=False)


def _in_project(config: Path) -> Path:
    """The configuration, here or else in the project of the Claude Code that started this.

    A file that a team shares names it by its path in the project. Claude Code may have been started in a folder below.
    """
    project = os.environ.get("CLAUDE_PROJECT_DIR")
    if not project or config.exists() or not (there := project / config).exists():
        return config
    return there


def _look_for_garbage() -> None:
    """From now on, and never among what is there by now: that would hold up the first answer, and each look later."""
    gc.freeze()
    # By default, all objects are looked at once a second under load, and each connection or open question has some 200.
    gc.set_threshold(700, 10, 40)
    gc.enable()


async def _warn_if_hidden(crib: Toolcrib, config: Config) -> None:
    """Once the shared servers are there, log that the policy hides all their tools from `local`, where it does.

    Servers that `local` has for itself start when it first asks. Where there are such, nobody knows yet.
    """
    if any(server.isolation == "principal" and server.of(LOCAL.id) is not None for server in config.enabled):
        return
    await crib.ready(principal=None)
    if (told := told_of_hidden(crib, LOCAL)) is not None:
        logger.warning("%s: %s Clients over standard input and output are this principal.", config.path, told)


async def _tell_if_incomplete(crib: Toolcrib, bundle: str, principal: Principal | None) -> None:
    """Once the sources are there, say what `bundle` lacks for `principal`; see `Toolcrib.resolve`."""
    await crib.ready(principal=principal)
    try:
        crib.resolve(bundle, principal).check()
    except BundleIncomplete as error:
        stderr.print(f"The bundle {bundle} is incomplete, and served without: {plain(error.diagnosis)}", markup=False)


@contextmanager
def audited(config: Path, *, no_audit: bool) -> Generator[AuditStore | None]:
    """What writes down the operations of a gateway that serves `config`; None where nothing does.

    Raises:
        InvalidConfig: the file cannot be used.
    """
    audit = None if no_audit else read_config(config).audit
    if audit is None:
        yield None
        return
    with AuditStore(
        audit.place,
        max_bytes=audit.max_mb * 1024 * 1024,
        max_age_s=audit.max_days * DAY_S,
        keeps_arguments=audit.arguments,
        redaction=Redaction(audit.redact),
    ) as store:
        yield store


def default_cache() -> Path:
    """Where definitions are kept unless somebody says otherwise."""
    return platformdirs.user_cache_path("toolcrib") / "definitions.sqlite"
