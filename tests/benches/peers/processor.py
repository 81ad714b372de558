"""A processor for the MultiLangDaemon, on the KCL for Python: it counts its records and checkpoints each batch.

Its argument is a folder, where it writes how many records of its shard it saw.
"""

import os
import sys

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor


class Counting(processor.RecordProcessorBase):
    def __init__(self, folder):
        self.folder = folder
        self.seen = 0

    def initialize(self, initialize_input):
        path = os.path.join(self.folder, initialize_input.shard_id)
        self.file = os.open(path, os.O_CREAT | os.O_WRONLY)

    def process_records(self, process_records_input):
        if process_records_input.records:
            self.seen += len(process_records_input.records)
            os.pwrite(self.file, b"%d" % self.seen, 0)
            process_records_input.checkpointer.checkpoint()

    def lease_lost(self, lease_lost_input):
        pass

    def shard_ended(self, shard_ended_input):
        shard_ended_input.checkpointer.checkpoint()

    def shutdown_requested(self, shutdown_requested_input):
        shutdown_requested_input.checkpointer.checkpoint()


kcl.KCLProcess(Counting(sys.argv[1])).run()
