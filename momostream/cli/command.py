"""Turn a function of option groups into a command: a flat signature for typer, and errors of one line."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

import typer

from momostream.cli.messages import notify

__all__ = ["INTERRUPTED", "command"]

#: Exit code of a command that Ctrl-C or SIGTERM has stopped.
INTERRUPTED = 130


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a typer command of a function whose parameters are options, or dataclasses of options.

    Typer needs one parameter for each option. It gets them in the order in which they are written, those of a group
    one after the other; the function gets its groups.

    Examples
    --------
    >>> from momostream.cli.options import ModelSettings
    >>> @command
    ... def show(model: ModelSettings, rows: int = 1) -> None:
    ...     print(model.seed, rows)
    >>> list(signature(show).parameters)
    ['set', 'seed', 'bounds', 'rows']
    >>> show(set=None, seed=3, bounds=None, rows=2)
    3 2
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for name, parameter in signature(function).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            parameters += [_as_parameter(field, types[field.name]) for field in fields(groups[name])]
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @functools.wraps(function)
    def run_command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        _call_with_short_errors(function, values)

    run_command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run_command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run_command


def _as_parameter(field: Field[Any], annotation: Any) -> Parameter:
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _call_with_short_errors(function: Callable[..., None], values: dict[str, Any]) -> None:
    """Call a function: errors that the user can fix become one line and exit code 1; a closed pipe is not an error."""
    try:
        function(**values)
        sys.stdout.flush()
    except BrokenPipeError:
        # Otherwise the interpreter flushes standard output again at exit, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        notify("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except (ValueError, OSError) as error:
        notify(_one_line(error))
        raise typer.Exit(1) from None


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())
