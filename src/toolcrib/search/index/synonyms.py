"""Words with the same meaning in the context of tools: the words of requests, and the words of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolcrib.search.index.tokens import terms

GROUPS: Sequence[str] = (
    # actions
    "create add make new insert generate compose",
    "delete remove erase drop clear discard",
    "get fetch retrieve read obtain",
    "find search lookup query discover locate",
    "show list display view browse",
    "update edit modify change alter",
    "send post publish submit deliver",
    "buy purchase order shop",
    "start begin launch run execute",
    "stop end cancel terminate",
    "check verify validate test",
    "calculate compute estimate",
    "convert transform translate",
    "compare contrast difference",
    "recommend suggest advice",
    "book reserve schedule",
    "summarize summary abstract",
    "download save export",
    "upload import load",
    "open access visit",
    "analyze analysis analytics insight",
    "explain describe definition meaning",
    "learn study teach tutor education",
    "write draft author",
    "play listen watch stream",
    # objects
    "picture image photo photograph",
    "film movie cinema",
    "song music track tune",
    "video clip youtube",
    "email mail inbox",
    "message text chat sms",
    "file document doc",
    "folder directory",
    "website webpage site url link web",
    "repository repo",
    "bug issue ticket defect",
    "picture drawing art",
    "weather forecast temperature",
    "news article headline",
    "stock share equity",
    "finance financial invest",
    "currency exchange money",
    "cryptocurrency crypto bitcoin",
    "price cost fee",
    "car vehicle automobile auto",
    "flight airline plane airport",
    "trip travel vacation journey tour itinerary",
    "hotel lodging accommodation",
    "house home apartment property estate rental",
    "restaurant dining meal",
    "food recipe dish cook",
    "job career employment hiring vacancy",
    "doctor medical health clinic",
    "medicine drug medication",
    "exercise workout fitness",
    "company business firm organization",
    "customer client",
    "person people user",
    "employee staff worker",
    "team group",
    "meeting appointment event calendar",
    "task todo reminder",
    "map location place",
    "route direction navigation",
    "city town",
    "country nation",
    "address location",
    "product item goods",
    "gift present",
    "deal discount coupon promotion",
    "store shop market",
    "review rating feedback",
    "paper research academic journal literature",
    "book novel",
    "law legal lawyer",
    "code program software",
    "database table sql",
    "chart graph plot diagram visualization",
    "data dataset",
    "report statement",
    "account profile",
    "password credential login",
    "sport match",
    "horoscope astrology zodiac",
    "language linguistic",
    "word vocabulary",
    "pdf document",
    "phone telephone mobile",
    "date day",
    "time hour",
    "amount quantity number",
    "size length",
)
"""Groups of words that are synonyms of each other. A word may be in several groups. English, not specific to a
catalog."""


def _related() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for group in GROUPS:
        members = [terms(word, keep_stopwords=True)[-1] for word in group.split()]
        for term in members:
            found.setdefault(term, {}).update(dict.fromkeys(member for member in members if member != term))
    return {term: tuple(members) for term, members in found.items()}


RELATED: Mapping[str, tuple[str, ...]] = _related()
"""The synonyms of each term, in the form of `tokens.terms`."""
