"""What a run leaves behind: its directory, the files that come home, and its numbers."""
