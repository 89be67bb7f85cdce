"""What Azure offers: VM sizes and images, as tables. It asks nobody and knows no day; what is past, the caller says."""
