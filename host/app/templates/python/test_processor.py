import unittest

from processor import handle


class Handle(unittest.TestCase):
    def test_a_record_comes_out_as_it_came(self):
        self.assertEqual(handle(b"hello"), b"hello")

    def test_an_empty_record_is_rejected(self):
        with self.assertRaises(ValueError):
            handle(b"")
