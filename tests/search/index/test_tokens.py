"""Texts of many scripts, identifiers, and what must never raise."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.search.index.tokens import MAX_CHARS, MAX_WORD_CHARS, terms, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("create_issue", "create issue"),
        ("git.commit", "git commit"),
        ("fs:read/file-tree", "fs read file tree"),
        ("getUserById", "get user by id"),
        ("GitHub", "git hub github"),
        ("HTTPServer", "http server httpserver"),
        ("URLs", "urls"),
        ("sha256", "sha sha256"),
        ("s3", "s3"),
        ("2fa", "2fa"),
        ("OAuth2", "o auth auth2 oauth oauth2"),
        ("S3Bucket", "s3 bucket s3bucket"),
        ("listS3BucketsOfUser", "list s3 buckets of user"),
        ("top 10", "top 10"),
        ("the tool's name, don't", "the tool name don"),
        ("the tool’s naïve name", "the tool naive name"),
        ("Crème brûlée Ørsted Łódź Straße ﬁle", "creme brulee orsted lodz strasse file"),
        ("ＦＵＬＬ　ｗｉｄｔｈ", "full width"),
        ("soft\u00adhyphen zero\u200bwidth", "softhyphen zerowidth"),
    ],
)
def test_identifiers_and_latin_text_become_folded_words(text: str, expected: str) -> None:
    assert list(words(text)) == expected.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("機械学習", "機械 械学 学習"),
        ("東", "東"),
        ("ファイルを検索する", "ファ ァイ イル を 検索 する"),
        ("ｶﾀｶﾅ", "カタ タカ カナ"),
        ("人々", "人々"),
        ("第3章", "第 3 章"),
        ("用Python写", "用 python 写"),
        ("ไทย", "ไท ทย"),
        ("ค้นคำ", "ค้น นคํ คํา"),
        ("Привет, МИР", "привет мир"),
        ("ΣΊΣΥΦΟΣ", "σίσυφοσ"),
        ("हिन्दी में", "हिन्दी में"),
        ("بحث الملفات", "بحث الملفات"),
        ("검색 도구", "검색 도구"),
        ("빌드build", "빌드 build"),
    ],
)
def test_other_scripts_become_pairs_or_words_and_end_where_the_script_changes(text: str, expected: str) -> None:
    assert list(words(text)) == expected.split()


def test_terms_are_stemmed_and_hold_no_stopwords_unless_asked() -> None:
    assert terms("Searching for the files of a repository") == terms("search file repositories")
    assert terms("who is it") == []
    assert terms("who is it", keep_stopwords=True) == ["who", "is", "it"]


def test_a_word_means_the_same_whether_or_not_other_scripts_stand_beside_it() -> None:
    text = "GitHub URLs, sha256 and the user's HTTPServer2 named createIssue"

    assert terms(f"{text} 検") == [*terms(text), "検"]


@given(st.text(st.characters(codec=None), max_size=200))
def test_no_text_raises_and_folding_twice_finds_no_new_words(text: str) -> None:
    once = list(words(text))

    assert set(words(" ".join(once))) == set(once)
    assert all(0 < len(word) <= MAX_WORD_CHARS for word in once)
    assert len(terms(text, keep_stopwords=True)) == len(once)


@pytest.mark.parametrize("text", ["", "\x00", "\ud800", "🔥👩‍👩‍👧", "'", "\u0301\u0301", "_-_"])
def test_a_text_without_letters_has_no_terms(text: str) -> None:
    assert terms(text, keep_stopwords=True) == []


@pytest.mark.parametrize("unit", ["a", "aB", "word ", "検", "é", "ก", "9z", "'s", "\x00", "\u0301", "ﷺ"])
def test_a_huge_text_is_read_to_its_bound(unit: str) -> None:
    huge = unit * 100_000

    found = list(words(huge))

    assert len(found) <= 20 * MAX_CHARS
    assert found == list(words(huge[:MAX_CHARS]))
    assert max(map(len, found), default=0) <= MAX_WORD_CHARS


def test_threads_stem_alike() -> None:
    texts = [f"running{chr(97 + at % 26)}{chr(97 + at // 26)}ings nationally organizations" for at in range(600)]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(terms, texts)) == [terms(text) for text in texts]
