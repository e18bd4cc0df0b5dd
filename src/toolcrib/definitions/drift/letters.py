"""Finds letters that look like other letters, and names that look the same."""

from __future__ import annotations

import re
import unicodedata

_LIKE: dict[str, str] = {
    "a": "ɑαа", "b": "ƄЬᏏ", "c": "ᴄⲥсꮯ", "d": "ԁᏧ", "e": "ꬲеҽ", "f": "ꬵꞙẝք", "g": "ɡᶃƍց", "h": "һհᏂ",
    "i": "ıɪɩιіꙇӏꭵᎥ", "j": "ϳј", "k": "кκ", "l": "Ɩǀ", "n": "ոռ", "o": "ᴏᴑꬽοσⲟоօ", "p": "ρⲣр", "q": "ԛգզ",
    "r": "ꭇꭈᴦⲅгꮁ", "s": "ꜱƽѕꮪ", "t": "т", "u": "ꞟᴜꭎꭒʋυս", "v": "ᴠνѵꮩ", "w": "ɯᴡѡԝաꮃ", "x": "х", "y": "ɣᶌʏỿꭚγуү",
    "z": "ᴢꮓ", "A": "ΑАᎪ", "B": "ꞴΒВᏴ", "C": "ⲤСᏟ", "D": "Ꭰ", "E": "ΕЕᎬ", "F": "ꞘϜ", "G": "ԌᏀᏳ", "H": "ΗⲎНᎻ",
    "I": "ΙⲒІӀ", "J": "ꞲͿЈᎫ", "K": "ΚⲔКᏦ", "L": "ⳐᏞ", "M": "ΜϺⲘМᎷ", "N": "ΝⲚ", "O": "ΟⲞОՕ", "P": "ΡⲢРᏢ", "R": "ƦᎡᏒ",
    "S": "ЅՏᏕᏚ", "T": "ΤⲦТᎢ", "U": "Ս", "V": "ѴᏙ", "W": "ԜᎳᏔ", "X": "ꞳΧⲬХ", "Y": "ΥⲨУҮᎩᎽ", "Z": "ΖᏃ",
    "2": "ꝚƧϨꙄ", "3": "ꞫȜƷꝪⳌЗӠ", "4": "Ꮞ", "5": "Ƽ", "6": "ⳒбᏮ", "8": "ȣȢ", "9": "ꝮⳊ",
}  # fmt: skip
"""Characters of Latin, Greek, Cyrillic, Armenian, Coptic and Cherokee that look like an ASCII letter or digit.

Source: Unicode Technical Standard #39, `confusables.txt`, as in the package confusable-homoglyphs 3.3.1. We added
the small Cyrillic and Greek letters of `k` and `t`, which that table treats as different. Characters that
normalization replaces are left out.
"""

_LETTERS = {twin: letter for letter, twins in _LIKE.items() for twin in twins}
_STYLED = {
    chr(code): letter
    for code in (*range(0xFF01, 0xFF5F), *range(0x1D400, 0x1D800))
    if len(letter := unicodedata.normalize("NFKC", chr(code))) == 1
}
"""Full-width letters and mathematical letters (bold, italic, double-struck) with their ASCII letters."""
_TO_ASCII = str.maketrans(_LETTERS | {styled: _LETTERS.get(letter, letter) for styled, letter in _STYLED.items()})
_ONE_LOOK = {"1": "l", "I": "l", "|": "l", "0": "O"}
_TO_LOOK = str.maketrans({twin: _ONE_LOOK.get(letter, letter) for twin, letter in _LETTERS.items()} | _ONE_LOOK)
# Letters of the Latin script are part of normal spelling everywhere: `yakıt`.
_FOREIGN = re.compile(f"[{''.join(twin for twin in _LETTERS if not unicodedata.name(twin).startswith('LATIN'))}]")
_WORD = re.compile(r"[^\W_]+")


def skeleton(name: str) -> str:
    """Return a string that is equal for two names if people cannot tell them apart by eye.

    Case matters. The spacing of letters does not.
    """
    return unicodedata.normalize("NFKC", name).translate(_TO_LOOK).replace("rn", "m")


def plain(text: str) -> str:
    """Return `text` with look-alike letters replaced by ASCII letters. The length does not change."""
    return text if text.isascii() else text.translate(_TO_ASCII)


def borrowed(name: str) -> str:
    """Return the letters of other scripts that look like ASCII letters, in words that contain ASCII letters. Each
    once."""
    if name.isascii():
        return ""
    words = (word for word in _WORD.findall(name) if re.search("[A-Za-z]", word))
    return "".join(dict.fromkeys(letter for word in words for letter in _FOREIGN.findall(word)))
