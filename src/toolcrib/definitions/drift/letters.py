"""Letters that people take for others, and names that are the same to the eye."""

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
"""What looks like an ASCII letter or digit in Latin, Greek, Cyrillic, Armenian, Coptic and Cherokee.

Source: Unicode Technical Standard #39, `confusables.txt`, as the package confusable-homoglyphs 3.3.1 has it. `k` and
`t` are ours, for their small Cyrillic and Greek letters are told apart there. What normalization undoes is left out."""

_LETTERS = {twin: letter for letter, twins in _LIKE.items() for twin in twins}
_STYLED = {
    chr(code): letter
    for code in (*range(0xFF01, 0xFF5F), *range(0x1D400, 0x1D800))
    if len(letter := unicodedata.normalize("NFKC", chr(code))) == 1
}
"""Letters in full width, and those of formulas: bold, italic, doubled."""
_TO_ASCII = str.maketrans(_LETTERS | {styled: _LETTERS.get(letter, letter) for styled, letter in _STYLED.items()})
_ONE_LOOK = {"1": "l", "I": "l", "|": "l", "0": "O"}
_TO_LOOK = str.maketrans({twin: _ONE_LOOK.get(letter, letter) for twin, letter in _LETTERS.items()} | _ONE_LOOK)
# Letters of the Latin script are spelling wherever they stand: `yakıt`.
_FOREIGN = re.compile(f"[{''.join(twin for twin in _LETTERS if not unicodedata.name(twin).startswith('LATIN'))}]")
_WORD = re.compile(r"[^\W_]+")


def skeleton(name: str) -> str:
    """Equal for names that nobody can tell apart by looking at them; case counts, spacing of letters does not."""
    return unicodedata.normalize("NFKC", name).translate(_TO_LOOK).replace("rn", "m")


def plain(text: str) -> str:
    """`text` with ASCII letters for those that look like them; as long as it was."""
    return text if text.isascii() else text.translate(_TO_ASCII)


def borrowed(name: str) -> str:
    """The letters of another script that stand among ASCII letters of one word and only look like them, each once."""
    if name.isascii():
        return ""
    words = (word for word in _WORD.findall(name) if re.search("[A-Za-z]", word))
    return "".join(dict.fromkeys(letter for word in words for letter in _FOREIGN.findall(word)))
