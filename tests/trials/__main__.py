"""The command: `python -m tests.trials NAME …`; every module beside this one is a trial with a `main`."""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules


def main() -> int:
    import tests.trials

    names = sorted(module.name for module in iter_modules(tests.trials.__path__) if module.name != "__main__")
    if len(sys.argv) < 2 or sys.argv[1] not in names:
        sys.stderr.write(f"usage: python -m tests.trials {{{','.join(names)}}} …\n")
        return 2
    code: int = import_module(f"tests.trials.{sys.argv[1]}").main(sys.argv[2:])
    return code


if __name__ == "__main__":
    sys.exit(main())
