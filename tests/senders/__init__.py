"""Senders that are not ours, for the tests of `shotline record --listen`."""
