"""Independent senders, for the tests of `shotline record --listen`."""
