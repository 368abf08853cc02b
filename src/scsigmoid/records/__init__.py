"""Files that one stage writes and another reads: numbered CSV rows, measurements, identities."""
