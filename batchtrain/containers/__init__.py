"""Container images: builds them, checks them against the image contract, copies them to a registry or an archive."""
