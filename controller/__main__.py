"""`python -m controller` is `cutover`."""

from .cli import main

if __name__ == "__main__":
    main()
