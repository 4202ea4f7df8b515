"""The shuffle: brings records to the tasks that own their keys; broadcast, multicast, messages."""
