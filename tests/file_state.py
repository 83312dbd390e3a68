"""What readers can see of a recording in progress, in its files."""

import os

import h5py

from common import COMPLETE, until


def visible_rows(path):
    """Returns the rows that any reader of a plain file sees now; 0 before there is a file."""
    try:
        with h5py.File(path, locking=False) as file:
            return file["rf"].shape[0]
    except (OSError, KeyError):
        return 0


def wait_for_rows(path, rows):
    """Waits until readers of a plain file see at least this many rows."""
    return until(lambda: visible_rows(path) >= rows, what=f"row {rows} in the file")


def has_complete_shot(path, number, link=0):
    """Returns `True` if readers of a plain file see the complete shot of this number."""
    try:
        with h5py.File(path, locking=False) as file:
            shots = file[f"link{link}/shots"][: file["rf"].shape[0]]
    except (OSError, KeyError):
        return False
    return bool(((shots["number"] == number) & (shots["state"] == COMPLETE)).any())


def disk_usage_bytes(*folders):
    """Returns the bytes that all files below some folders occupy on their drives."""
    total = 0
    for folder in folders:
        for entry in os.scandir(folder):
            try:
                total += entry.stat().st_blocks * 512
            except FileNotFoundError:
                continue  # removed since the folder was listed
    return total
