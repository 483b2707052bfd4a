"""`python -m mrtr_cassette`, the same as the command `mrtr-cassette`."""

from mrtr_cassette.cli import main

if __name__ == "__main__":
    main()
