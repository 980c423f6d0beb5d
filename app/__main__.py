"""`python -m app` is `octavo`."""

from app.entry import main

main()
