import unittest

from carriers import summarize

FLIGHTS = [
    b'{"carrier":"UA","dep_delay":2}',
    b'{"carrier":"UA","dep_delay":null}',
    b'{"carrier":"AA","dep_delay":-5}',
]


class Summarize(unittest.TestCase):
    def test_each_carrier_is_one_line(self):
        lines, rejects = summarize(FLIGHTS)
        self.assertEqual(rejects, [])
        self.assertEqual(
            lines,
            {
                "AA": b'{"carrier":"AA","flights":1,"with_delay":1,"delay_minutes":-5}',
                "UA": b'{"carrier":"UA","flights":2,"with_delay":1,"delay_minutes":2}',
            },
        )

    def test_what_is_not_a_flight_is_rejected_and_the_rest_counts(self):
        bad = [b"", b"[]", b"{", b"\xff", b"{}", b'{"carrier":7}', b'{"carrier":"UA","dep_delay":"late"}']
        lines, rejects = summarize(bad + FLIGHTS)
        self.assertEqual([index for index, _ in rejects], list(range(len(bad))))
        self.assertEqual(len(lines), 2)


if __name__ == "__main__":
    unittest.main()
