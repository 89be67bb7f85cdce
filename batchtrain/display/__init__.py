"""What a terminal and a notebook show while work is in progress."""
