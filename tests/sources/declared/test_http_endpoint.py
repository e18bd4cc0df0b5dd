"""Declared HTTP endpoints: what is sent, which addresses are allowed, and how an answer is read."""

from __future__ import annotations

import datetime
import json
import socket
import ssl
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sources.declared.declaring import call, call_of, declared, properties, source_of
from tests.sources.declared.listening import answer, listening, redirect

from toolcrib.core.errors import InvalidArguments, InvalidTool, SourceUnavailable, ToolFailed
from toolcrib.sources import addresses
from toolcrib.sources.addresses import is_public
from toolcrib.sources.base import Source
from toolcrib.sources.declared.definition import read_declared
from toolcrib.sources.declared.http_endpoint import Endpoint
from toolcrib.sources.declared.http_request import MAX_BODY_BYTES
from toolcrib.testing.sources import check_source

pytestmark = pytest.mark.anyio

CITY = {**properties(city="string"), "required": ["city"]}


def local(url: str, schema: dict[str, Any] | None = None, /, **more: Any) -> dict[str, Any]:
    """Return an endpoint on the local machine."""
    return {"http": {"url": url, "allow_private": True, **more}, **({"input_schema": schema} if schema else {})}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """For each host name: the addresses of the first lookup, the second lookup, ..."""
    known: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in known:
            return real(host, port, *args, **options)
        found = known[name].pop(0)
        return [each for address in found for each in real(address, port, type=socket.SOCK_STREAM)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known


async def test_a_declared_endpoint_passes_the_source_contract() -> None:
    async with listening({"/one": answer("first"), "/two": answer("second")}) as server:

        def make() -> Source:
            return source_of(local(f"{server.url}/{{city}}", CITY))

        await check_source(make, tool="tool", arguments={"city": "one"}, other_arguments={"city": "two"})


async def test_arguments_go_to_the_parts_of_the_request_that_declare_them() -> None:
    schema = {**properties(city="string", days="integer", tags="array", key="string"), "required": ["city"]}
    wire = local(
        "{url}/v1/{city}/now?fixed=a b&again={city}",
        schema,
        method="put",
        query={"days": "{days}", "tag": "{tags}", "units": "metric"},
        headers={"X-Key": "k-{key}", "Authorization": "Bearer ${env:TOKEN}"},
        json={"city": "{city}", "days": "{days}", "all": ["{tags}", "{key}"], "note": "{{{city}}}", "deep": {"n": 1}},
    )
    async with listening() as server:
        wire["http"]["url"] = wire["http"]["url"].replace("{url}", server.url)
        source = source_of(wire, environ={"TOKEN": "s3cret"})
        assert (await call_of(source, city="São Paulo", days=3, tags=["a&b", "c"])).text == "fine"
        (heard,) = server.heard
        assert heard.method == "PUT"
        assert heard.target == (
            "/v1/S%C3%A3o%20Paulo/now?fixed=a%20b&again=S%C3%A3o%20Paulo&days=3&tag=a%26b&tag=c&units=metric"
        )
        assert heard.headers["authorization"] == "Bearer s3cret"
        assert heard.headers["content-type"] == "application/json"
        assert heard.headers["host"] == f"127.0.0.1:{server.port}"
        assert "x-key" not in heard.headers
        assert json.loads(heard.body) == {
            "city": "São Paulo", "days": 3, "all": [["a&b", "c"]], "note": "{São Paulo}", "deep": {"n": 1},
        }  # fmt: skip


async def test_a_body_is_sent_as_text() -> None:
    async with listening() as server:
        wire = local(server.url, properties(text="string"), method="POST", body="<{text}>")
        await call(wire, text="ü\r\nX: y")
        assert server.heard[0].body.decode() == "<ü\r\nX: y>"
        await call(wire)
        assert server.heard[1].body == b""


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
@settings(max_examples=examples(30), deadline=None)
def test_no_argument_leaves_its_part_of_the_address(text: str) -> None:
    async def ask() -> str | None:
        async with listening() as server:
            try:
                await call(local(f"{server.url}/v1/{{city}}/now?q={{city}}", CITY), city=text)
            except InvalidArguments:
                return None
            return server.heard[0].target

    target = anyio.run(ask)
    if target is None:
        assert {".", ".."} & set(text.replace("\\", "/").split("/"))
        return
    path, _, query = target.partition("?")
    assert [unquote(part) for part in path.split("/")] == ["", "v1", text, "now"]
    assert unquote(query) == f"q={text}"


@pytest.mark.parametrize("text", ["..", ".", "a/../b", "../../admin", "..\\..", "/..", ""])
async def test_an_argument_that_changes_the_path_is_refused(text: str) -> None:
    async with listening() as server:
        with pytest.raises(InvalidArguments, match="`city` must not"):
            await call(local(f"{server.url}/v1/{{city}}", CITY), city=text)
        assert server.heard == []


async def test_arguments_that_only_together_form_dots_are_refused() -> None:
    schema = {**properties(a="string", b="string"), "required": ["a", "b"]}
    async with listening() as server:
        with pytest.raises(InvalidArguments):
            await call(local(f"{server.url}/v1/{{a}}{{b}}/x", schema), a=".", b=".")


@pytest.mark.parametrize("text", ["a\r\nX-Admin: 1", "a\nb", "a\0"])
async def test_a_line_break_in_a_header_is_refused(text: str) -> None:
    async with listening() as server:
        with pytest.raises(InvalidArguments, match="line break"):
            await call(local(server.url, CITY, headers={"X-City": "{city}"}), city=text)
        assert server.heard == []


async def test_a_header_accepts_non_ascii_text() -> None:
    async with listening() as server:
        await call(local(server.url, CITY, headers={"X-City": " {city} "}), city="Köln")
        assert server.heard[0].headers["x-city"] == "Köln"


async def test_a_secret_with_a_line_break_sets_its_tool_aside_and_is_not_shown() -> None:
    source = source_of(local("http://h/", headers={"X-Key": "${env:KEY}"}), environ={"KEY": "a\nb"})
    (aside,) = source.listing.set_aside
    assert aside.reason == "http.headers.X-Key: its value contains a line break, which a header cannot contain"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "0x7f000001", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_the_local_machine_is_refused_by_default(host: str) -> None:
    async with listening() as server:
        with pytest.raises(ToolFailed, match="its address is in a private network"):
            await call({"http": {"url": f"http://{host}:{server.port}/"}})
        assert server.heard == []


async def test_the_local_machine_is_reached_if_private_addresses_are_allowed() -> None:
    async with listening() as server:
        assert (await call(local(f"http://localhost:{server.port}/"))).text == "fine"


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "168.63.129.16",
        "192.0.0.192", "224.0.0.1", "240.0.0.1", "255.255.255.255", "0.0.0.0", "198.18.0.1", "::", "::1", "fe80::1",
        "fe80::1%1", "fd00:ec2::254", "ff02::1", "fec0::1", "2001:db8::1", "::ffff:10.0.0.1", "::7f00:1",
        "64:ff9b::a00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:a00:1::",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_recognized(address: str) -> None:
    assert not is_public(address)


SPECIAL_PURPOSE = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24
192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4 255.255.255.255/32
::1/128 ::/128 ::ffff:10.0.0.0/104 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001:2::/48 2001:10::/28 2001:db8::/32
2002:a00::/24 3fff::/20 5f00::/16 fc00::/7 fe80::/10
"""
"""Networks that the registries of IANA do not mark as globally reachable (2026-11)."""


@pytest.mark.parametrize("network", SPECIAL_PURPOSE.split())
def test_special_purpose_networks_of_the_registries_are_not_public(network: str) -> None:
    known = ip_network(network)
    assert not is_public(str(known[0]))
    assert not is_public(str(known[-1]))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_a_public_address_is_recognized(address: str) -> None:
    assert is_public(address)


async def test_a_name_that_resolves_to_the_local_machine_is_refused(
    names: dict[str, list[list[str]]], caplog: pytest.LogCaptureFixture
) -> None:
    names["inside.example"] = [["127.0.0.1"]]
    async with listening() as server:
        with pytest.raises(ToolFailed, match="its address is in a private network"):
            await call({"http": {"url": f"http://inside.example:{server.port}/"}})
        assert server.heard == []
        assert "`inside.example` is in a private network" in caplog.text


async def test_the_connection_uses_the_address_that_was_checked(names: dict[str, list[list[str]]]) -> None:
    """A name is looked up once, so no second answer can point to a different address."""
    names["rebinding.example"] = [["127.0.0.1"]]
    async with listening() as server:
        assert (await call(local(f"http://rebinding.example:{server.port}/"))).text == "fine"
        assert server.heard[0].headers["host"] == f"rebinding.example:{server.port}"
    assert names["rebinding.example"] == []


async def test_the_next_address_of_a_name_is_tried(names: dict[str, list[list[str]]]) -> None:
    names["several.example"] = [["127.0.0.2", "127.0.0.1"]]
    async with listening() as server:
        assert (await call(local(f"http://several.example:{server.port}/"))).text == "fine"


async def test_the_certificate_must_match_the_host_name(
    names: dict[str, list[list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names["secure.example"], names["other.example"] = [["127.0.0.1"]], [["127.0.0.1"]]
    certificate = certified("secure.example", tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    addresses._verification.cache_clear()  # pyright: ignore[reportPrivateUsage]
    try:
        async with listening(tls=tls) as server:
            assert (await call(local(f"https://secure.example:{server.port}/"))).text == "fine"
            with pytest.raises(SourceUnavailable, match="did not accept a connection") as failed:
                await call(local(f"https://other.example:{server.port}/"))
            assert "certificate" in failed.value.diagnosis
    finally:
        addresses._verification.cache_clear()  # pyright: ignore[reportPrivateUsage]


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as proxy, listening() as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        await call(local(server.url))
        assert (len(proxy.heard), len(server.heard)) == (0, 1)


async def test_a_redirect_within_the_origin_is_followed_with_its_headers() -> None:
    async with listening({"/old": redirect("/new?x=1")}) as server:
        assert (await call(local(f"{server.url}/old", headers={"X-Key": "k"}))).text == "fine"
        assert [(heard.target, heard.headers["x-key"]) for heard in server.heard] == [("/old", "k"), ("/new?x=1", "k")]


async def test_a_redirect_to_a_different_origin_is_reported_and_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as other, listening() as server:
        server.answers["/"] = redirect(f"{other.url}/steal?token=1", "307 Temporary Redirect")
        with pytest.raises(ToolFailed, match="redirects to a different address") as failed:
            await call(local(server.url, headers={"X-Key": "s3cret"}))
        assert other.heard == []
        assert f"did not follow the redirect of ops.tool to http://127.0.0.1:{other.port}\n" in caplog.text
        assert "token" not in failed.value.message


@pytest.mark.parametrize(
    "to", ["http://user:pw@127.0.0.1:{port}/", "https://127.0.0.1:{port}/", "file:///etc/passwd", "http://["]
)
async def test_redirects_with_credentials_or_other_schemes_are_not_followed(to: str) -> None:
    async with listening() as server:
        server.answers["/"] = redirect(to.format(port=server.port))
        with pytest.raises((ToolFailed, SourceUnavailable)):
            await call(local(server.url))
        assert len(server.heard) == 1


async def test_endless_redirects_are_stopped_after_a_limit() -> None:
    async with listening({"/": redirect("/again")}) as server:
        with pytest.raises(ToolFailed, match="more than 5 times"):
            await call(local(server.url))
        assert len(server.heard) == 6


async def test_an_error_status_is_reported_with_its_body() -> None:
    async with listening({"/": answer("no such city", "404 Not Found")}) as server:
        result = await call(local(server.url))
        assert (result.text, result.is_error) == ("HTTP 404\nno such city", True)


async def test_with_an_output_schema_the_answer_is_read_as_json() -> None:
    async with listening({"/": answer('{"n": 1}', kind="application/json")}) as server:
        assert (await call({**local(server.url), "output_schema": {"type": "object"}})).structured_content == {"n": 1}
        assert (await call(local(server.url))).structured_content is None


async def test_an_answer_is_decoded_with_its_charset_and_an_empty_one_has_no_content() -> None:
    async with listening({"/": answer("ü".encode("latin-1"), kind="text/plain; charset=latin-1")}) as server:
        assert (await call(local(server.url))).text == "ü"
        server.answers["/"] = answer("", "204 No Content")
        assert (await call(local(server.url))).content == ()


async def test_a_long_answer_is_cut() -> None:
    async with listening({"/": answer("x" * 3_000_000)}) as server:
        result = await call(local(server.url))
        assert result.text == "x" * MAX_BODY_BYTES + "\n[the rest was left out]"


async def test_an_answer_that_does_not_arrive_times_out() -> None:
    async with listening({"/never": b""}) as server:
        with pytest.raises(SourceUnavailable, match=r"`ops\.tool` did not answer within 0\.2 s") as gone:
            await call({**local(f"{server.url}/never"), "timeout_s": 0.2})
        assert not gone.value.retryable


async def test_a_refused_connection_is_retryable() -> None:
    async with listening() as server:
        url = server.url
    with pytest.raises(SourceUnavailable, match=r"`ops\.tool` could not be reached") as gone:
        await call(local(url))
    assert gone.value.retryable


async def test_no_error_shows_the_values_of_environment_variables() -> None:
    async with listening({"/": b"nonsense\r\n\r\n"}) as server:
        wire = local(f"{server.url}/${{env:KEY}}", headers={"X-Key": "${env:KEY}"}, query={"k": "${env:KEY}"})
        with pytest.raises(SourceUnavailable) as gone:
            await call_of(source_of(wire, environ={"KEY": "s3cret/.."}))
        assert server.heard[0].target == "/s3cret%2F..?k=s3cret%2F.."
        assert "s3cret" not in f"{gone.value.message} {gone.value.diagnosis} {gone.value.details}"


@pytest.mark.parametrize(
    ("http", "complaint"),
    [
        ({}, "http: `url` is required"),
        ({"url": "https://{city}/"}, "http.url: write out scheme, host and port, without placeholders"),
        ({"url": "https://{city}.example.com/"}, "http.url: write out scheme, host and port"),
        ({"url": "https://example.com{city}/"}, "http.url: write out scheme, host and port"),
        ({"url": "https://example.com:{city}/"}, "http.url: write out scheme, host and port"),
        ({"url": "{city}://example.com/"}, "http.url: write out scheme, host and port"),
        ({"url": "https://${env:HOST}/"}, "http.url: write out scheme, host and port"),
        ({"url": "file:///etc/passwd"}, "http.url: write out scheme, host and port"),
        ({"url": "https://me:secret@example.com/"}, "http.url: put credentials into `headers`"),
        ({"url": "https://example.com/#{city}"}, "http.url: remove the part after the `#`, because it is never sent"),
        ({"url": "https://example.com:99999999/"}, "http.url: `https://example.com:99999999` is not a valid address"),
        ({"url": "https://example.com/a/../b"}, "http.url: the path must not contain `.` or `..`"),
        ({"url": "https://example.com/{city}/../b"}, "http.url: the path must not contain `.` or `..`"),
        ({"url": "https://example.com/{days}"}, "http.url: `{days}` is part of the address, so it must be `required`"),
        ({"url": "https://example.com/{town}"}, "http.url: `{town}` is not a property of the input schema"),
        ({"url": "https://example.com/", "querry": {}}, "http: unknown key `querry` (did you mean `query`?)"),
        ({"url": "https://example.com/", "method": "TRACE"}, "http.method: must be one of: GET, POST"),
        ({"url": "https://example.com/", "headers": {"Host": "x"}}, "http.headers: the header `Host` cannot be set"),
        ({"url": "https://example.com/", "headers": {"A B": "x"}}, "http.headers: the header `A B` cannot be set"),
        ({"url": "https://example.com/", "headers": {"A": "x\ny"}}, "http.headers.A: a header cannot contain a line"),
        ({"url": "https://example.com/", "headers": {"A": "{c}"}}, "http.headers.A: `{c}` is not a property"),
        ({"url": "https://example.com/", "query": {"a": 1}}, "http.query.a: must be a string"),
        ({"url": "https://example.com/", "json": {"a": ["{c}"]}}, "http.json: `{c}` is not a property"),
        ({"url": "https://example.com/", "json": {}, "body": ""}, "http.body: a request has one body"),
    ],
)  # fmt: skip
def test_an_invalid_endpoint_is_refused_with_its_path(http: dict[str, Any], complaint: str) -> None:
    schema = {**properties(city="string", days="integer"), "required": ["city"]}
    with pytest.raises(InvalidTool) as refused:
        declared({"http": http, "input_schema": schema})
    assert refused.value.message.startswith(f"ops.tool.{complaint}")


def certified(name: str, folder: Path) -> Path:
    """Write a file with a key and a self-signed certificate for `name`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, no_password = serialization.Encoding.PEM, serialization.NoEncryption()
    path = folder / "certificate.pem"
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, no_password) + certificate.public_bytes(pem)
    )
    return path


async def test_an_endless_answer_is_read_only_up_to_the_limit() -> None:
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n" + b"x" * (2 * MAX_BODY_BYTES)
    async with listening({"/never": endless}) as server:
        assert (await call(local(f"{server.url}/never"))).text.startswith("x" * MAX_BODY_BYTES + "\n[")


def test_arguments_cannot_change_the_structure_of_a_body() -> None:
    schema = {"properties": {"x": {"type": "string"}}, "required": ["x"]}
    text = {"url": "https://example.com/", "body": '{{"a": "{x}"}}'}
    with pytest.raises(InvalidTool, match="write a JSON body with arguments under `json`"):
        read_declared("s", "t", {"description": "D", "http": text, "input_schema": schema})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    http = {"url": "https://example.com/", "method": "POST", "headers": form, "body": "a={x}&b=1"}
    action = read_declared("s", "t", {"description": "D", "http": http, "input_schema": schema}).action
    assert isinstance(action, Endpoint)
    assert action.asking({"x": "1&b=2"}).content == b"a=1%26b%3D2&b=1"
