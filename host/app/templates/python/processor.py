"""The logic, free of the host: `python3 -m unittest` runs it anywhere."""


def handle(data):
    """Makes the output of one record's data. A ValueError rejects the record."""
    if not data:
        raise ValueError("the record is empty")
    # Your logic goes here.
    return data
