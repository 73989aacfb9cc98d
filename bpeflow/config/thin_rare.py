"""`ThinRare`: the setting `thin_rare`, which is one value made of two."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _check_keep(keep: float) -> float:
    """Refuse numbers that are not one divided by a whole number. Those that are nearly (0.33) stand for it."""
    if abs(keep * round(1 / keep) - 1) > 0.02:
        raise ValueError("need one divided by a whole number, such as 0.5, 0.33 (one in 3) or 0.1")
    return keep


class ThinRare(BaseModel):
    """Which pre-tokens are rare, and how many of them are kept."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    below: int = Field(ge=1, lt=2**63)
    keep: Annotated[float, Field(ge=1e-9, le=1), AfterValidator(_check_keep)]

    @property
    def one_in(self) -> int:
        """The number of pre-tokens of which one is kept, with its count times this number."""
        return round(1 / self.keep)


def as_thin_rare(value: object) -> object:
    """Accept ``below=5,keep=0.1``, the form of a flag."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError("need below=N,keep=FRACTION, such as below=5,keep=0.1")
    return {key.strip(): number.strip() for key, _, number in pairs}
