"""Signatures and docstrings of functions that take settings as keywords: each setting by its name, type and meaning.

The models, which describe the settings, take time to import. So both are completed when somebody asks for them: `help`,
`inspect.signature`, and completion in IPython and notebooks.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

if TYPE_CHECKING:
    from bpeflow.config import Setting

Function = TypeVar("Function", bound=Callable[..., Any])

#: The model of each set of keywords.
_MODELS = {
    "CorpusKeywords": "bpeflow.config.CorpusSettings",
    "CountKeywords": "bpeflow.config.CountSettings",
    "LearnKeywords": "bpeflow.config.MergeSettings",
    "TrainKeywords": "bpeflow.config.Settings",
    "TokenizerKeywords": "bpeflow.config.Settings",
    "EncodeKeywords": "bpeflow.config.encoding.EncodeSettings",
    "TransformersKeywords": "bpeflow.config.TransformersSettings",
}


def takes_settings(function: Function) -> Function:
    """Complete the signature and the docstring of a function whose last parameter is ``**name: Unpack[Keywords]``."""
    *_, annotation = (value for name, value in function.__annotations__.items() if name != "return")
    parameters = _Parameters(inspect.signature(function), annotation.removeprefix("Unpack[").removesuffix("]"))
    function.__signature__ = _Signature(parameters)  # type: ignore[attr-defined]
    function.__doc__ = _Docstring(function.__doc__ or "", parameters)
    return function


def without_unknown(function: Function) -> Function:
    """Leave the last parameter, ``**_unknown``, out of the signature: it is there for an error with a hint."""
    written = inspect.signature(function)
    *shown, _ = written.parameters.values()
    function.__signature__ = written.replace(parameters=shown)  # type: ignore[attr-defined]
    return function


class _Parameters:
    """The parameters of a function, with each of its settings."""

    def __init__(self, written: inspect.Signature, typed: str) -> None:
        self.written, self._typed = written, typed

    @cached_property
    def complete(self) -> inspect.Signature:
        fields = self._model.model_fields
        *named, _ = self.written.parameters.values()
        return self.written.replace(
            parameters=[
                *named,
                *(
                    inspect.Parameter(
                        name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=fields[name].get_default(call_default_factory=True) if name in self._known else {},
                        annotation=getattr(kind, "__forward_arg__", kind),
                    )
                    for name, kind in self._types.items()
                ),
            ]
        )

    def describe(self) -> Iterator[str]:
        """Yield the lines on the settings."""
        for name in self._types:
            inner = [key.partition(".")[2] for key in self._known if key.startswith(f"{name}.")]
            text = self._describe(name) if name in self._known else f"a mapping, with any of {', '.join(inner)}"
            yield textwrap.fill(f"{name}: {text}", 112, initial_indent=4 * " ", subsequent_indent=8 * " ")

    def _describe(self, name: str) -> str:
        """Describe a setting in Python's words."""
        setting, default = self._known[name], self.complete.parameters[name].default
        shown = setting.extra["unset"] or (repr(default) if default else "")
        return setting.description + (f" (default: {shown})" if shown else "")

    @cached_property
    def _known(self) -> dict[str, Setting]:
        """The settings by key, but for sections."""
        from bpeflow.config import all_settings

        return {setting.key: setting for setting in all_settings(self._model)}

    @cached_property
    def _types(self) -> dict[str, Any]:
        """The types of the settings, by name."""
        from bpeflow.config import keywords

        types: dict[str, Any] = getattr(keywords, self._typed).__annotations__
        return types

    @cached_property
    def _model(self) -> Any:
        module, _, name = _MODELS[self._typed].rpartition(".")
        return getattr(import_module(module), name)


class _Signature(inspect.Signature):
    """A signature whose parameters are completed when they are read."""

    __slots__ = ("_settings",)

    def __init__(self, settings: _Parameters) -> None:
        super().__init__(return_annotation=settings.written.return_annotation)
        self._settings = settings

    @property
    def written(self) -> inspect.Signature:
        """The signature in the source."""
        return self._settings.written

    @property
    def parameters(self) -> Any:
        return self._settings.complete.parameters

    def replace(self, **changes: Any) -> inspect.Signature:  # type: ignore[override]
        return self._settings.complete.replace(**changes)


class _Docstring(str):
    """A docstring that gets a section on the settings from `inspect.getdoc`, which expands its tabs."""

    _settings: _Parameters

    def __new__(cls, written: str, settings: _Parameters) -> _Docstring:
        docstring = super().__new__(cls, written)
        docstring._settings = settings
        return docstring

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        section = "\n".join(["Settings, as keywords:", *self._settings.describe()])
        return f"{inspect.cleandoc(str(self))}\n\n{section}".expandtabs(tabsize)
