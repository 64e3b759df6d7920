"""`python -m headlights` is the command `headlights`."""

from headlights.cli import main

if __name__ == "__main__":
    main()
