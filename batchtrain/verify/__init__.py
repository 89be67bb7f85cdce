"""What is true of Azure: the probes of every assumption, how they are observed, and how they are judged."""
