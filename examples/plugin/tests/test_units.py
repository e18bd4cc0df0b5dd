"""What a plugin's own tests look like: the published contract check, and what is particular to it."""

import anyio
import pytest
from toolcrib_units import Units, convert

from toolcrib import ToolFailed
from toolcrib.testing.plugins import check_plugin


def test_it_keeps_the_contract_of_a_plugin() -> None:
    async def check() -> None:
        await check_plugin(
            Units,
            tool="convert",
            arguments={"value": 1, "unit": "km", "to": "m"},
            other_arguments={"value": 1, "unit": "mi", "to": "m"},
        )

    anyio.run(check)


def test_a_marathon_is_42_kilometres() -> None:
    assert convert(26.2, "mi", "km") == {"value": 42.164813, "unit": "km"}


def test_a_mass_has_no_length() -> None:
    with pytest.raises(ToolFailed, match="different things"):
        convert(1, "kg", "m")
