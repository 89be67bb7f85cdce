"""What a run waits for and what comes next, decided by pure rules over records."""
