"""`python -m pai_sdk`: the command, where its script is not on PATH."""

from pai_sdk.cli import main

if __name__ == "__main__":
    main()
