"""`python -m app` is `octavo`."""

from app.cli import main

main()
