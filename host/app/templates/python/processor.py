"""The logic, independent of the host: `python3 -m unittest` runs it anywhere."""


def handle(data):
    """Turns one record's data into output. A ValueError rejects the record."""
    if not data:
        raise ValueError("the record is empty")
    # Your logic goes here.
    return data
