"""What Azure offers: tables of VM sizes and images. Pure: takes the current date as an argument."""
