"""Commands and groups of commands whose help names the values of options as people do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, SupportsIndex

import typer
from typer.core import TyperCommand, TyperGroup

from pai_sdk.cli import exit_codes
from pai_sdk.cli.usage.aliases import canonical
from pai_sdk.cli.usage.language import translated, translated_errors, translated_usage
from pai_sdk.cli.usage.mistakes import UsageError, command_hint, explain_missing, explain_option, explain_value

_VALUES = (("int", "NUMBER"), ("float", "NUMBER"), ("Path", "PATH"))  # by the name of the type


class _InstanceOfNewest(str):
    """`-:1`, an instance of the newest job. Options are recognized by their first character, which this hides."""

    __slots__ = ()

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        part = super().__getitem__(key)
        return "" if part == "-" else part


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _labelled(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        arguments = [_InstanceOfNewest(argument) if argument.startswith("-:") else argument for argument in args]
        with _explained(self, ctx):
            return super().parse_args(ctx, arguments)

    def get_usage(self, ctx: Any) -> str:
        return translated_usage(super().get_usage(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _labelled(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _explained(self, ctx):
            return super().parse_args(ctx, args)

    def get_usage(self, ctx: Any) -> str:
        return translated_usage(super().get_usage(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except UsageError as error:
            if hint := command_hint(ctx.command_path, args[0], self.commands):
                error.message = f"No such command {args[0]!r}; {hint}"
            raise


@contextmanager
def _explained(command: Any, ctx: Any) -> Iterator[None]:
    """Adds hints to the errors of its block about unknown options and wrong values."""
    try:
        yield
    except UsageError as error:
        if hasattr(error, "option_name") and hasattr(error, "possibilities"):
            parameters = command.get_params(ctx)
            names = (name for each in parameters for name in (*each.opts, *each.secondary_opts, each.metavar))
            options = {name for name in names if name}
            explain_option(error, ctx.command_path, options)
        else:
            explain_missing(error)
            explain_value(error)
        raise


class RootGroup(_Group):
    """The group of all commands, which accepts other names of commands too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses arguments whose first word may be another name of a command."""
        with translated_errors():
            return super().parse_args(ctx, canonical(args))

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        with translated_errors():
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help, with the exit codes at its end."""
        super().format_help(ctx, formatter)
        formatter.write(translated(exit_codes.DESCRIPTION))


class Commands(typer.Typer):
    """A group of commands with this help."""

    def __init__(
        self,
        *,
        help: str,
        example: str,
        cls: type[TyperGroup] = _Group,
        no_args_is_help: bool = True,
        **settings: Any,
    ) -> None:
        """Creates the group; without a command it prints its help, which ends with the example."""
        super().__init__(
            cls=cls,
            help=translated(f"{_unwrapped(help)}\n\nExample: {example}"),
            no_args_is_help=no_args_is_help,
            **settings,
        )

    def command(  # type: ignore[override]  # the other parameters are passed on
        self, name: str | None = None, **settings: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Adds a command; the arguments are those of `Typer.command`."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            text = _unwrapped(inspect.getdoc(function) or "")
            return super(Commands, self).command(name, cls=_Command, help=translated(text), **settings)(function)

        return add


def _unwrapped(text: str) -> str:
    """Returns a text with one line per paragraph, because Typer keeps line ends after the first paragraph."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _labelled(parameters: list[Any]) -> list[Any]:
    """Names the values of options by one word, and arguments by their names in capitals, without their types."""
    for parameter in parameters:
        for text in ("help", "rich_help_panel"):
            setattr(parameter, text, translated(getattr(parameter, text, None) or "") or None)
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.metavar or parameter.name.upper()
            vars(parameter).update(display_type_rich=_no_type, get_usage_pieces=partial(_usage_of, parameter))
        elif parameter.metavar is None:
            parameter.metavar = "" if parameter.is_flag else _value_of(parameter)
    return parameters


def _usage_of(argument: Any, ctx: Any) -> list[str]:
    """Returns an argument as it is in the line `Usage:`."""
    name = argument.metavar if argument.required else f"[{argument.metavar}]"
    return [name if argument.nargs == 1 else f"{name}..."]


def _no_type(ctx: Any) -> None:
    """Returns no type to display."""


def _value_of(option: Any) -> str | None:
    """Returns a word for the value of an option; None for choices, which name themselves."""
    kind = getattr(option, "type_descriptor", None)
    if kind is None or kind.is_choice:  # releases of Typer without descriptors use such words already
        return None
    return next((word for name, word in _VALUES if name in option.bare_type()), "TEXT")
